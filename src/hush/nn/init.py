"""`hush.init_`: the Edge of Chaos for any model.

hidden layers   W ~ N(0, σ_w²/fan-in), b ~ N(0, σ_b²)       paper, section 1
first layer     W ~ N(0, 1/fan-in),    b = 0                so that q¹ = |x|²/N: paper, appendix D
output layer    as a hidden one ("All layers are initialized on the EOC", appendix D), or as `output` says
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from hush.nn.activations import from_design
from hush.nn.calibrate import calibrate_
from hush.nn.checks import check_activations, check_inputs, check_model
from hush.nn.flow import Flow, trace_flow
from hush.nn.report import Drawn, InitReport, LeftAlone
from hush.nn.weights import DRAWS, Weights, fan_in
from hush.theory import Design

__all__ = ["Output", "init_"]

Output = Literal["edge", "preserve", "zero", "keep"]
_OUTPUTS = ("edge", "preserve", "zero", "keep")


def init_(
    model: nn.Module,
    design: Design,
    example: Tensor | tuple[Tensor, ...] | None = None,
    *,
    weights: Weights = "gaussian",
    output: Output = "edge",
    calibrate: Tensor | tuple[Tensor, ...] | None = None,
    generator: torch.Generator | None = None,
    allow: tuple[type[nn.Module], ...] = (),
) -> InitReport:
    """Draw every Linear and Conv1d/2d/3d of `model` for `design`, in place, and report on every parameter.

    Arguments:
        example: inputs that tell, by data flow, which layers are first and which last; without it (and without
            `calibrate`) the order of registration decides, and the report says so.
        weights: "gaussian", "orthogonal" (Haar) or "delta_orthogonal" (only the centre of a kernel); all of variance
            σ_w²/fan-in.
        output: the layers whose output the model gives out: "edge" as hidden layers, "preserve" N(0, 1/fan-in) and
            zero bias, "zero" all zero, "keep" leaves them alone.
        calibrate: a batch on which each layer but the output is then scaled once, so that its measured q is q*.
        generator: where the random numbers come from; the same seed gives the same model.
        allow: activation classes that may stand beside the design's own, such as (nn.Tanh,) in a head.

    Raises:
        ValueError: if the model has no such layer, is lazy or on the meta device, uses another activation than the
            design, or an input is empty, constant, not finite, or of the wrong dtype.
    """
    if weights not in DRAWS:
        raise ValueError(f"weights must be one of {', '.join(DRAWS)}, got {weights!r}.")
    if output not in _OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(_OUTPUTS)}, got {output!r}.")
    layers = check_model(model)
    known = check_activations(model, design, allow)
    batch = None if calibrate is None else check_inputs(model, calibrate)
    seen = batch if example is None else check_inputs(model, example)
    flow = None if seen is None else trace_flow(model, seen)
    plans = list(_plans(layers, flow, design, weights, output))
    shared = _shared(model, layers)
    drawn, skipped = _draw(plans, shared, design, generator)
    scales = {}
    if batch is not None:
        inner = {plan.name: plan.module for plan in plans if plan.role != "output" and _weight(plan) in drawn}
        scales = calibrate_(model, inner, batch, design.q_star)
        drawn = {
            name: replace(entry, std=entry.std * scales.get(name.rpartition(".")[0], 1.0))
            for name, entry in drawn.items()
        }
    return InitReport(
        design=f"{from_design(design)}",
        order="registration" if flow is None else "data flow",
        drawn=tuple(drawn.values()),
        left_alone=tuple(_left_alone(model, drawn, skipped)),
        scales=scales,
        input_variance=design.input_variance,
        advice=tuple(_advice(design, flow, seen, plans, known)),
    )


@dataclass(frozen=True)
class _Plan:
    """How one layer is to be drawn; `variance` is σ² in σ²/fan-in, None to leave the layer alone."""

    name: str
    module: nn.Module
    role: str
    kind: str
    variance: float | None
    bias_variance: float


def _plans(
    layers: dict[str, nn.Module], flow: Flow | None, design: Design, weights: str, output: Output
) -> Iterator[_Plan]:
    """In the order of data flow if that is known; layers that did not run come last, as hidden ones."""
    names = list(layers)
    if flow is None:
        first, last = {names[0]}, {names[-1]}
    else:
        first, last = set(flow.first), set(flow.outputs)
        names = [*flow.order, *(name for name in names if name not in flow.reads)]
    rules: dict[str, tuple[float | None, float]] = {
        "first": (1.0, 0.0),
        "hidden": (design.sigma_w2, design.sigma_b2),
        "edge": (design.sigma_w2, design.sigma_b2),
        "preserve": (1.0, 0.0),
        "zero": (0.0, 0.0),
        "keep": (None, 0.0),
    }
    for name in names:
        role = "first" if name in first else "output" if name in last else "hidden"
        variance, bias_variance = rules[output if role == "output" else role]
        yield _Plan(name, layers[name], role, weights, variance, bias_variance)


def _draw(
    plans: list[_Plan], shared: dict[int, str], design: Design, generator: torch.Generator | None
) -> tuple[dict[str, Drawn], dict[str, str]]:
    """(what was drawn, why the rest of these layers was not), by the name of the parameter."""
    drawn: dict[str, Drawn] = {}
    skipped: dict[str, str] = {}
    owner: dict[int, str] = {}
    for plan in plans:
        for part in ("weight", "bias"):
            parameter, name = getattr(plan.module, part), f"{plan.name}.{part}" if plan.name else part
            if parameter is None:
                continue
            reason = _why_not(plan, parameter, owner, shared)
            if reason:
                skipped[name] = reason
                continue
            owner[id(parameter)] = name
            variance = plan.variance if part == "weight" else plan.bias_variance
            assert variance is not None  # _why_not said so
            if part == "bias":
                std = math.sqrt(variance)
                with torch.no_grad():
                    parameter.normal_(0.0, std, generator=generator) if std else parameter.zero_()
                drawn[name] = Drawn(name, tuple(parameter.shape), plan.role, "gaussian", std)
            else:
                groups = getattr(plan.module, "groups", 1)
                DRAWS[plan.kind](parameter, variance, groups, generator)
                inputs = parameter.shape[1] if plan.kind == "delta_orthogonal" else fan_in(parameter)
                drawn[name] = Drawn(name, tuple(parameter.shape), plan.role, plan.kind, math.sqrt(variance / inputs))
    return drawn, skipped


def _why_not(plan: _Plan, parameter: Tensor, owner: dict[int, str], shared: dict[int, str]) -> str | None:
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


def _shared(model: nn.Module, layers: dict[str, nn.Module]) -> dict[int, str]:
    """Parameters that also belong to a module other than a weight layer, and what that is."""
    own = set(layers.values())
    found = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if module not in own:
            for part, parameter in module.named_parameters(recurse=False):
                found[id(parameter)] = f"{path}.{part} of {type(module).__name__}" if path else part
    return found


def _left_alone(model: nn.Module, drawn: dict[str, Drawn], skipped: dict[str, str]) -> Iterator[LeftAlone]:
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
            yield LeftAlone(name, _reason(parent))


def _reason(module: nn.Module) -> str:
    kind = type(module).__name__
    if "Norm" in kind:
        return f"{kind}: a normalisation keeps its own scale"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return f"{kind}: a table, not a sum over inputs"
    if "ConvTranspose" in kind:
        return f"{kind}: its fan-in depends on the stride"
    if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return "another name of a module drawn above"
    return f"{kind}: neither Linear nor a convolution"


def _weight(plan: _Plan) -> str:
    return f"{plan.name}.weight" if plan.name else "weight"


def _advice(
    design: Design, flow: Flow | None, seen: tuple[Tensor, ...] | None, plans: list[_Plan], known: int
) -> Iterator[str]:
    target = f"Give it inputs of variance {design.input_variance:g}"
    if design.input_variance != design.q_star:
        target += f": below q* = {design.q_star:g}, because q* is stable from below only (paper, appendix C)"
    if seen is not None and seen[0].is_floating_point():
        target += f"; the example has {float(seen[0].double().square().mean()):.3g}"
    yield f"{target}."
    if flow is None:
        yield "Which layer is first was read off the order of registration; give an example input to have it seen."
    elif idle := [plan.name for plan in plans if plan.name not in flow.reads]:
        yield f"Did not run on the example, drawn as hidden layers: {', '.join(idle)}."
    if known == 0:
        yield f"No activation modules were found: check that forward applies {from_design(design)} itself."
    bare = [plan.name for plan in plans if plan.role == "hidden" and plan.module.bias is None]
    if bare and design.sigma_b2 > 0.0:
        yield f"Without a bias, which the design wants at σ_b² = {design.sigma_b2:.3g}: {', '.join(bare)}."
