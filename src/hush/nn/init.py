"""`hush.init_`: the Edge of Chaos for a chain of layers, and for networks of blocks.

In a chain:

hidden layers   W ~ N(0, σ_w²/fan-in), b ~ N(0, σ_b²)       paper, section 1
first layer     W ~ N(0, 1/fan-in),    b = 0                so that q¹ = |x|²/N: paper, appendix D
output layer    as a hidden one ("All layers are initialized on the EOC", appendix D), or as `output` says

What has residual streams, norms, attention, gates or concatenations is drawn by `hush.nn.block_init`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from hush.nn.activations import from_design
from hush.nn.block_init import BlockRequest, BranchScale, init_blocks
from hush.nn.calibrate import calibrate_
from hush.nn.checks import Inputs, check_activations, check_inputs, check_kept, check_model
from hush.nn.drawing import OUTPUTS, LayerPlan, Output, draw_, plan_layers, untouched
from hush.nn.flow import INPUT, Flow
from hush.nn.init_report import InitReport
from hush.nn.quiet_run import Arguments
from hush.nn.structure import activation_functions, listed, module_obstacles, obstacles, own_forwards
from hush.nn.tracing import trace_flow
from hush.nn.weights import DRAWS, Weights
from hush.theory import Design

__all__ = ["Structure", "init_"]

Structure = Literal["auto", "chain"]


def init_(
    model: nn.Module,
    design: Design,
    example: Inputs | None = None,
    *,
    structure: Structure = "auto",
    weights: Weights = "gaussian",
    output: Output = "edge",
    branch_scale: BranchScale | None = None,
    keep: tuple[str, ...] = (),
    calibrate: Inputs | None = None,
    generator: torch.Generator | None = None,
    allow: tuple[type[nn.Module], ...] = (),
) -> InitReport:
    """Draw every weight layer of `model` for `design`, in place, and report on every parameter.

    A plain chain is drawn on the Edge of Chaos. In any other model (residual streams, norms, attention, gates,
    concatenations) each layer gets a role from the data flow and is drawn just before it runs on the example, from the
    second moment of what it reads, so that every pre-activation has q = q*, and every residual branch passes a squared
    gradient with gain β². Norms' own scales and shifts are set too. The report names role and block of each parameter.

    Arguments:
        example: inputs that tell, by data flow, what the model is: a tensor, a tuple of arguments or a dictionary of
            keyword arguments (dict(input_ids=…)); `calibrate` does as well. Models made of torch's own modules in
            nn.Sequential can do without: there the order of registration is that of the data. What has blocks needs
            it, and should get a batch that is like the data, because second moments are measured on it.
        structure: "auto" looks at the model; "chain" takes it for a chain of layers whatever it is.
        weights: "gaussian", "orthogonal" (Haar) or "delta_orthogonal" (only the centre of a kernel); all of variance
            σ_w²/fan-in.
        output: the layers whose output the model gives out: "edge" as hidden layers, "preserve" N(0, 1/fan-in) and
            zero bias, "zero" all zero, "keep" leaves them alone.
        branch_scale: β, the scale of a residual branch: a number, "1/sqrt(depth)", "1/depth", or "learned" (starts at
            1/√depth), where depth counts the branches; by default what the design says, else "1/sqrt(depth)". A scale
            parameter of the model's own (LayerScale) is set to it. Blocks that end in an activation, as in the first
            ResNets, have no choice here.
        keep: names of layers or parameters to leave as they are, such as ("head",).
        calibrate: a batch on which each layer but the output is then scaled once, so that its measured q is q*.
            In a network of blocks second moments are measured on this batch in place of the example, and each layer
            that feeds φ, or the norm between them, is scaled so that its share of zeros is the design's.
        generator: where the random numbers come from; the same seed gives the same model.
        allow: activation classes that may stand beside the design's own, such as (nn.Tanh,) in a head.

    Raises:
        ValueError: if no example shows what the model is, or something in it could not be recognised; if it has no
            weight layer, is lazy or on the meta device, or uses another activation than the design; if an input is
            empty, constant, not finite, or of the wrong dtype. Nothing has been drawn then.
    """
    if weights not in DRAWS:
        raise ValueError(f"weights must be one of {', '.join(DRAWS)}, got {weights!r}.")
    if output not in OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(OUTPUTS)}, got {output!r}.")
    if structure not in ("auto", "chain"):
        raise ValueError(f"structure must be 'auto' or 'chain', got {structure!r}.")
    check_kept(model, keep)
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
    if structure == "auto" and seen is not None and flow is not None and obstacles(model, flow):
        asked = BlockRequest(design, weights, output, branch_scale, keep, generator, batch is not None)
        return init_blocks(model, asked, batch if batch is not None else seen, flow)
    taken_for = _structure(model, flow, told=structure == "chain")
    plans = list(plan_layers(layers, flow, design.chain(), weights, output))
    drawn, skipped = draw_(model, plans, generator, keep)
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
        closer = "Pass example=x, a batch, to have its blocks seen and drawn as what they are. "
        raise ValueError(
            f"{kind} is no plain chain of layers: {'; '.join(seen)}. Drawn as in a chain, its variance and gradient "
            f"may grow or shrink with every block. {closer}Pass structure='chain' to draw every layer as in a chain "
            f"all the same."
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
    seen: Arguments | None,
    plans: list[LayerPlan],
    known: int,
) -> Iterator[str]:
    target = f"Give it inputs of variance {design.input_variance:g}"
    if design.input_variance != design.q_star:
        target += f": below q* = {design.q_star:g}, because q* is stable from below only (paper, appendix C)"
    first = None if seen is None else next(x for x in tree_leaves(seen) if isinstance(x, Tensor))
    if first is not None and first.is_floating_point():
        target += f"; the example has {float(first.double().square().mean()):.3g}"
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
