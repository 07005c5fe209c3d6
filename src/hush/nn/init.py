"""`hush.init_`: the Edge of Chaos for a chain of layers.

hidden layers   W ~ N(0, σ_w²/fan-in), b ~ N(0, σ_b²)       paper, section 1
first layer     W ~ N(0, 1/fan-in),    b = 0                so that q¹ = |x|²/N: paper, appendix D
output layer    as a hidden one ("All layers are initialized on the EOC", appendix D), or as `output` says
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from hush.nn.activations import from_design
from hush.nn.calibrate import calibrate_
from hush.nn.checks import check_activations, check_inputs, check_model
from hush.nn.drawing import OUTPUTS, LayerPlan, Output, draw_, plan_layers, untouched
from hush.nn.flow import INPUT, Flow
from hush.nn.init_report import InitReport
from hush.nn.structure import activation_functions, listed, module_obstacles, obstacles, own_forwards
from hush.nn.tracing import trace_flow
from hush.nn.weights import DRAWS, Weights
from hush.theory import Design

__all__ = ["Structure", "init_"]

Structure = Literal["auto", "chain"]


def init_(
    model: nn.Module,
    design: Design,
    example: Tensor | tuple[Tensor, ...] | None = None,
    *,
    structure: Structure = "auto",
    weights: Weights = "gaussian",
    output: Output = "edge",
    calibrate: Tensor | tuple[Tensor, ...] | None = None,
    generator: torch.Generator | None = None,
    allow: tuple[type[nn.Module], ...] = (),
) -> InitReport:
    """Draw every Linear and Conv1d/2d/3d of `model` for `design`, in place, and report on every parameter.

    Arguments:
        example: inputs that tell, by data flow, which layers are first and which last, and whether the model is a
            chain; `calibrate` does as well. Models made of torch's own modules in nn.Sequential can do without: there
            the order of registration is that of the data.
        structure: "auto" looks at the model and refuses what is no chain of layers, because there is no theory for it
            (residual adds, normalisations, attention); "chain" takes it for a chain all the same.
        weights: "gaussian", "orthogonal" (Haar) or "delta_orthogonal" (only the centre of a kernel); all of variance
            σ_w²/fan-in.
        output: the layers whose output the model gives out: "edge" as hidden layers, "preserve" N(0, 1/fan-in) and
            zero bias, "zero" all zero, "keep" leaves them alone.
        calibrate: a batch on which each layer but the output is then scaled once, so that its measured q is q*.
        generator: where the random numbers come from; the same seed gives the same model.
        allow: activation classes that may stand beside the design's own, such as (nn.Tanh,) in a head.

    Raises:
        ValueError: if the model is no chain, or not seen to be one; if it has no such layer, is lazy or on the meta
            device, or uses another activation than the design; if an input is empty, constant, not finite, or of the
            wrong dtype. Nothing has been drawn then.
    """
    if weights not in DRAWS:
        raise ValueError(f"weights must be one of {', '.join(DRAWS)}, got {weights!r}.")
    if output not in OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(OUTPUTS)}, got {output!r}.")
    if structure not in ("auto", "chain"):
        raise ValueError(f"structure must be 'auto' or 'chain', got {structure!r}.")
    layers = check_model(model)
    known = check_activations(model, design, allow)
    batch = None if calibrate is None else check_inputs(model, calibrate)
    seen = batch if example is None else check_inputs(model, example)
    flow = None if seen is None else trace_flow(model, seen)
    if output != "edge" and flow is not None and not flow.outputs:
        raise ValueError(
            f"output={output!r} needs to know the output layers, and in what {type(model).__name__} gives out there is "
            f"no tensor that could be followed back to one; use output='edge'."
        )
    taken_for = _structure(model, flow, told=structure == "chain")
    plans = list(plan_layers(layers, flow, design.chain(), weights, output))
    drawn, skipped = draw_(model, plans, generator)
    scales = {}
    if batch is not None:
        inner = {
            plan.name: plan.module for plan in plans if plan.role != "output" and plan.parameter_name("weight") in drawn
        }
        scales = calibrate_(model, inner, batch, design.q_star)
        drawn = {
            name: replace(entry, std=entry.std * scales.get(name.rpartition(".")[0], 1.0))
            for name, entry in drawn.items()
        }
    return InitReport(
        design=f"{from_design(design)}",
        order="registration" if flow is None else "data flow",
        structure=taken_for,
        drawn=tuple(drawn.values()),
        left_alone=tuple(untouched(model, drawn, skipped)),
        scales=scales,
        input_variance=design.input_variance,
        advice=tuple(_advice(model, design, flow, seen, plans, known)),
    )


def _structure(model: nn.Module, flow: Flow | None, told: bool) -> str:
    """What the model is taken for, in a sentence; refuses what is no chain unless told to take it for one."""
    kind = type(model).__name__
    seen = module_obstacles(model) if flow is None else obstacles(model, flow)
    if seen and not told:
        closer = "Pass example=x to have the data flow seen. " if flow is None else ""
        raise ValueError(
            f"{kind} is no plain chain of layers, and there is no theory yet for what it is: {'; '.join(seen)}. Drawn "
            f"as in a chain, its variance and gradient may grow or shrink with every block. {closer}Pass "
            f"structure='chain' to draw every layer as in a chain all the same, or use another initialiser; "
            f"hush.diagnose(model, x) measures what comes of it."
        )
    odd = own_forwards(model) if flow is None else ()
    if odd and not told:
        raise ValueError(
            f"whether {kind} is a chain of layers, and in which order, shows only when it runs, because these classes "
            f"have a forward of their own: {', '.join(odd)}. Pass example=x, two inputs are enough, so that the data "
            f"flow can be seen; or structure='chain' to take the layers for a chain in their order of registration."
        )
    if seen:
        return f"Taken for a chain because structure='chain' says so, but it is none: {'; '.join(seen)}."
    if odd:
        return "Taken for a chain, in order of registration, because structure='chain' says so; no example was run."
    if flow is None:
        return "Taken for a chain: torch's own modules in a row, in order of registration."
    if flow.is_chain:
        return "A plain chain, seen by data flow."
    return "Chains along every path, seen by data flow."


def _advice(
    model: nn.Module,
    design: Design,
    flow: Flow | None,
    seen: tuple[Tensor, ...] | None,
    plans: list[LayerPlan],
    known: int,
) -> Iterator[str]:
    target = f"Give it inputs of variance {design.input_variance:g}"
    if design.input_variance != design.q_star:
        target += f": below q* = {design.q_star:g}, because q* is stable from below only (paper, appendix C)"
    if seen is not None and seen[0].is_floating_point():
        target += f"; the example has {float(seen[0].double().square().mean()):.3g}"
    yield f"{target}."
    if flow is None:
        yield "Which layer is first was read off the order of registration; give an example input to have it seen."
    else:
        yield from _seen_in(model, flow, design, plans)
    if known == 0 and not (flow and activation_functions(model, flow)):
        yield f"No activation modules were found: check that forward applies {from_design(design)} itself."
    bare = [plan.name for plan in plans if plan.role == "hidden" and plan.module.bias is None]
    if bare and design.sigma_b2 > 0.0:
        yield f"Without a bias, which the design wants at σ_b² = {design.sigma_b2:.3g}: {listed(bare, 12)}."


def _seen_in(model: nn.Module, flow: Flow, design: Design, plans: list[LayerPlan]) -> Iterator[str]:
    """What the data flow shows and the theory of a chain does not speak of."""
    if idle := [plan.name for plan in plans if plan.name not in flow.reads]:
        yield f"Did not run on the example, drawn as hidden layers: {', '.join(idle)}."
    # Residual streams fork at every layer; where they do, the sentence on the structure has said so.
    for source, readers in () if obstacles(model, flow) else flow.forks.items():
        name = "The input" if source == INPUT else repr(source)
        yield f"{name} is read by {listed(readers)}: their gradients add up there."
    if flow.used_again:
        yield f"Called more than once, while the theory takes every layer's weights for new: {listed(flow.used_again)}."
    inner = [call for call in flow.calls if call.reads - {INPUT} and call.layer not in flow.outputs]
    between = [name for call in inner for name in sorted(call.through)]
    if between and not obstacles(model, flow):
        yield f"Between the layers the theory knows nothing but activations; here there is also {listed(between)}."
    for function, places in activation_functions(model, flow).items():
        yield (
            f"The function {function} is called in {places}. The design is for {from_design(design)}: if this is "
            f"between the hidden layers, use design.module() there."
        )
