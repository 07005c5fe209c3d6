"""Which layer is drawn how, and the drawing itself; whatever is not drawn gets its reason."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hush.nn.flow import WEIGHT_LAYERS, Flow, layer_kind
from hush.nn.init_report import Drawn, LeftAlone
from hush.nn.structure import NORMALISATION_MODULES, source_name
from hush.nn.weights import DRAWS, Weights, fan_in
from hush.theory import Chain

__all__ = ["KEPT", "OUTPUTS", "LayerPlan", "Output", "draw_", "is_kept", "plan_layers", "untouched"]

Output = Literal["edge", "preserve", "zero", "keep"]
OUTPUTS = ("edge", "preserve", "zero", "keep")


@dataclass(frozen=True)
class LayerPlan:
    """How one layer is to be drawn; `variance` is σ² in σ²/fan-in, None to leave the layer alone."""

    name: str
    module: nn.Module
    role: str
    reads: str
    weights: Weights
    variance: float | None
    bias_variance: float

    def parameter_name(self, part: str) -> str:
        return f"{self.name}.{part}" if self.name else part


def plan_layers(
    layers: dict[str, nn.Module], flow: Flow | None, block: Chain, weights: Weights, output: Output
) -> Iterator[LayerPlan]:
    """In the order of data flow if that is known; layers that did not run come last, as hidden ones."""
    names = list(layers)
    if flow is None:
        first, last, reads = {names[0]}, {names[-1]}, {}
    else:
        first, last, reads = set(flow.first), set(flow.outputs), flow.reads
        names = [*flow.order, *(name for name in names if name not in reads)]
    inner = block.sigma_w**2, block.sigma_b**2
    rules: dict[str, tuple[float | None, float]] = {
        "first": (1.0, 0.0),
        "hidden": inner,
        "edge": inner,
        "preserve": (1.0, 0.0),
        "zero": (0.0, 0.0),
        "keep": (None, 0.0),
    }
    for name in names:
        role = "first" if name in first else "output" if name in last else "hidden"
        variance, bias_variance = rules[output if role == "output" else role]
        sources = " + ".join(source_name(source) for source in sorted(reads.get(name, ())))
        yield LayerPlan(name, layers[name], role, sources, weights, variance, bias_variance)


def draw_(
    model: nn.Module, plans: list[LayerPlan], generator: torch.Generator | None, keep: tuple[str, ...] = ()
) -> tuple[dict[str, Drawn], dict[str, str]]:
    """Draw in place: (what was drawn, why the rest of these layers was not), by the name of the parameter."""
    shared = _shared(model, {plan.module for plan in plans})
    drawn: dict[str, Drawn] = {}
    skipped: dict[str, str] = {}
    owner: dict[int, str] = {}
    for plan in plans:
        for part in ("weight", "bias"):
            parameter, name = getattr(plan.module, part), plan.parameter_name(part)
            if parameter is None:
                continue
            reason = _why_not(plan, parameter, owner, shared)
            if is_kept(name, keep):
                reason = KEPT
            if reason:
                skipped[name] = reason
                continue
            owner[id(parameter)] = name
            kind, std = _draw_bias(plan, parameter, generator) if part == "bias" else _draw_weight(plan, generator)
            shape = tuple(parameter.shape)
            drawn[name] = Drawn(name, shape, _layer_name(plan.module), plan.role, plan.reads, kind, std)
    return drawn, skipped


KEPT = "to be kept, as keep= says"


def is_kept(name: str, keep: tuple[str, ...]) -> bool:
    """Whether a parameter is one of these, or belongs to a module among these."""
    return any(name == each or name.startswith(f"{each}.") for each in keep)


def untouched(model: nn.Module, drawn: dict[str, Drawn], skipped: dict[str, str]) -> Iterator[LeftAlone]:
    """Every parameter that was not drawn, and why."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, _ in model.named_parameters(remove_duplicate=False):
        if name in drawn:
            continue
        if name in skipped:
            yield LeftAlone(name, skipped[name])
            continue
        parent = modules[name.rpartition(".")[0]]
        if (layer := name.partition(".parametrizations.")[0]) != name or name.startswith("parametrizations."):
            yield LeftAlone(name, f"{layer} is parametrised; initialise before parametrising")
        else:
            yield LeftAlone(name, _no_weight_layer(parent))


def _draw_weight(plan: LayerPlan, generator: torch.Generator | None) -> tuple[str, float]:
    weight, variance = plan.module.weight, plan.variance
    assert isinstance(weight, Tensor)
    assert variance is not None  # _why_not said so
    DRAWS[plan.weights](weight, variance, _groups(plan.module), generator)
    inputs = weight.shape[1] if plan.weights == "delta_orthogonal" else fan_in(weight)
    return plan.weights, math.sqrt(variance / inputs)


def _draw_bias(plan: LayerPlan, bias: Tensor, generator: torch.Generator | None) -> tuple[str, float]:
    std = math.sqrt(plan.bias_variance)
    with torch.no_grad():
        if std:
            bias.normal_(0.0, std, generator=generator)
        else:
            bias.zero_()
    return "gaussian", std


def _why_not(plan: LayerPlan, parameter: Tensor, owner: dict[int, str], shared: dict[int, str]) -> str | None:
    if not isinstance(parameter, nn.Parameter):
        return "is parametrised; initialise before parametrising"
    if id(parameter) in shared:
        return f"tied to {shared[id(parameter)]}"
    if id(parameter) in owner:
        return f"tied to {owner[id(parameter)]}, drawn there"
    if not parameter.requires_grad:
        return "frozen: requires_grad is False"
    if plan.variance is None:
        return "an output layer, and output='keep'"
    return None


def _shared(model: nn.Module, layers: set[nn.Module]) -> dict[int, str]:
    """Parameters that also belong to a module other than a weight layer, and what that is."""
    found = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if module not in layers:
            for part, parameter in module.named_parameters(recurse=False):
                found[id(parameter)] = f"{path}.{part} of {type(module).__name__}" if path else part
    return found


def _no_weight_layer(module: nn.Module) -> str:
    kind = type(module).__name__
    if isinstance(module, NORMALISATION_MODULES):
        return f"{kind}: a normalisation keeps its own scale"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return f"{kind}: a table, not a sum over inputs"
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        return f"{kind}: its fan-in depends on the stride"
    if isinstance(module, WEIGHT_LAYERS):
        return "another name of a module drawn above"
    return f"{kind}: neither Linear nor a convolution"


def _layer_name(module: nn.Module) -> str:
    kind = layer_kind(module)
    if isinstance(module, nn.Linear):
        return kind
    assert isinstance(module, nn.modules.conv._ConvNd)
    groups = f", {module.groups} groups" if module.groups > 1 else ""
    return f"{kind} {'×'.join(str(size) for size in module.kernel_size)}{groups}"


def _groups(module: nn.Module) -> int:
    return module.groups if isinstance(module, nn.modules.conv._ConvNd) else 1
