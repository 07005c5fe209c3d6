"""Initialise a model that is no plain chain: look at a run, give every layer its role, draw in a second run."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from hush.nn.activations import from_design
from hush.nn.block_drawing import BlockDrawing
from hush.nn.block_rules import Rules
from hush.nn.drawing import KEPT, Output, is_kept, untouched
from hush.nn.flow import Flow
from hush.nn.graph import Graph, trace_graph
from hush.nn.graph.recorder import record
from hush.nn.graph.roles import LayerRole, read_roles
from hush.nn.init_report import InitReport
from hush.nn.quiet_run import Arguments
from hush.nn.structure import listed, place_name
from hush.nn.weights import Weights
from hush.theory import Design

__all__ = ["BlockRequest", "BranchScale", "init_blocks"]

BranchScale = float | Literal["1/sqrt(depth)", "1/depth", "learned"]


@dataclass(frozen=True)
class BlockRequest:
    """The arguments of `hush.init_` that matter here."""

    design: Design
    weights: Weights
    output: Output
    branch_scale: BranchScale | None
    keep: tuple[str, ...]
    generator: torch.Generator | None
    calibrated: bool


def init_blocks(model: nn.Module, asked: BlockRequest, example: Arguments, flow: Flow) -> InitReport:
    """Draw `model`, whose `flow` is no chain, on `example`; see `hush.init_`."""
    graph = _seen(model, example)
    _check_recognised(model, graph, asked.design)
    roles = read_roles(graph, asked.design.phi())
    branches = sum(role.role == "writes to the stream" for role in roles)
    beta = _beta(asked, max(branches, 1))
    kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    left = dict(_not_to_be_drawn(model, graph, asked.keep))
    drawing = BlockDrawing(
        *(model, graph, roles, Rules(asked.design, branches), beta),
        *(asked.weights, asked.output, asked.generator, left, asked.calibrated),
    )
    try:
        drawing.prepare()
        record(model, example, before_layer=drawing)
        if asked.calibrated:
            drawing.calibrate_norms(record(model, example, with_tensors=True).tensors)
    except Exception:
        # Nothing is left half drawn.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(kept[name])
        raise
    drawn = drawing.drawn
    whole = {name.partition("[")[0] for name in drawn}
    left_alone = tuple(each for each in untouched(model, drawn, drawing.left) if each.name not in whole)
    return InitReport(
        design=f"{from_design(asked.design)}",
        order="data flow",
        structure=_what_it_is(roles, beta, branches),
        drawn=tuple(drawn.values()),
        left_alone=left_alone,
        scales=drawing.scales,
        input_variance=asked.design.input_variance,
        advice=tuple(_advice(model, graph, roles, asked.design, flow)),
    )


def _seen(model: nn.Module, example: Arguments) -> Graph:
    try:
        return trace_graph(model, example)
    except ValueError as error:
        if "more than 1 value per channel" in str(error):
            raise ValueError(
                "the model has BatchNorm, which in training needs more than one value per channel; give an example of "
                "at least two inputs, better of a whole batch."
            ) from error
        raise


def _check_recognised(model: nn.Module, graph: Graph, design: Design) -> None:
    """Refuse what nothing is known about, before anything is drawn."""
    problems = []
    if recurrent := [node for node in graph if node.options.get("recurrent")]:
        problems.append(f"{recurrent[0].function} at {listed(node.within for node in recurrent)} is recurrent")
    if lost := [node.layer or node.within for node in graph.of_kind("layer") if not node.inputs]:
        problems.append(f"what {listed(lost)} reads could not be followed back to a layer or to the input")
    phi = design.phi()
    if not any(node.phi == phi for node in graph.of_kind("activation")):
        seen = {node.function: place_name(model, node.within) for node in graph.of_kind("activation")}
        found = "; ".join(f"{function} in {place}" for function, place in seen.items()) or "none at all"
        problems.append(f"{from_design(design)} is nowhere applied (activations that were seen: {found})")
    if problems:
        raise ValueError(
            f"{type(model).__name__} could not be recognised: {'; '.join(problems)}. Nothing was drawn. Initialise the "
            f"parts that can be recognised one by one, or pass structure='chain' to draw every Linear and convolution "
            f"as in a chain; keep=(…) names layers that are to stay as they are."
        )


def _beta(asked: BlockRequest, branches: int) -> float:
    scale: float | str | None = asked.branch_scale
    if scale is None:
        # A rule is for the branches of this model, whatever depth it was designed for.
        scale = asked.design.branch_rule or asked.design.branch_scale or "1/sqrt(depth)"
    if scale in ("1/sqrt(depth)", "learned"):
        return 1.0 / math.sqrt(branches)
    if scale == "1/depth":
        return 1.0 / branches
    if isinstance(scale, (int, float)) and math.isfinite(scale) and scale > 0.0:
        return float(scale)
    raise ValueError(f"branch_scale must be a positive number, '1/sqrt(depth)', '1/depth' or 'learned', got {scale!r}.")


def _not_to_be_drawn(model: nn.Module, graph: Graph, keep: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    tables = {name: node for node in graph.of_kind("embedding") for name in node.parameters}
    used = {name for node in graph for name in node.parameters}
    first_name: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = first_name.setdefault(id(parameter), name)
        if is_kept(name, keep) or is_kept(first, keep):
            yield name, KEPT
        elif first in tables:
            what = "an embedding keeps its own scale, and branches are drawn to the stream it starts"
            yield name, what if first == name else f"tied to {first}: {what}"
        elif not parameter.requires_grad:
            yield name, "frozen: requires_grad is False"
        elif first not in used:
            yield name, "was not used on the example"
        elif first != name:
            yield name, f"tied to {first}, drawn there"


def _what_it_is(roles: list[LayerRole], beta: float, branches: int) -> str:
    blocks: dict[str, int] = {}
    for role in roles:
        if role.role == "writes to the stream":
            blocks[role.block] = blocks.get(role.block, 0) + 1
    if not blocks:
        return "A network without residual branches, with norms, gates or concatenations, seen by data flow."
    text = ", ".join(f"{count} × {name}" for name, count in blocks.items())
    ends = any(role.post_activation for role in roles)
    factors = [role.factor for role in roles if role.role == "writes to the stream" and role.factor != 1.0]
    if ends:
        scale = "each block's gain is near 1 by its last norm"
    elif factors:
        scale = f"the model scales its branches itself, by {_span(factors)}"
        scale += "" if len(factors) == branches else f", where it does not they are scaled by β = {beta:.3g}"
    else:
        scale = f"branches scaled by β = {beta:.3g}"
    return f"{branches} residual branches, seen by data flow: {text}; {scale}."


def _advice(model: nn.Module, graph: Graph, roles: list[LayerRole], design: Design, flow: Flow) -> Iterator[str]:
    phi, q = design.phi(), design.q_star
    others = {
        (node.function, place_name(model, node.within))
        for node in graph.of_kind("activation")
        if node.phi != phi and not node.options["module"]
    }
    for function, place in sorted(others):
        yield f"The function {function} is called in {place}; the design is for {from_design(design)}."
    if flow.used_again:
        yield f"Called more than once, and drawn for the first call: {listed(flow.used_again)}."
    bare = [node for node in graph.of_kind("activation") if node.phi == phi and graph[node.inputs[0]].kind == "add"]
    bare = [node for node in bare if not any(role.post_activation for role in roles)]
    if bare:
        names = listed(str(node.options["module"] or node.function) for node in bare)
        yield (
            f"φ reads the stream itself, with no norm or layer between, at {names}: its q starts near {q:g} and grows "
            f"with the stream, so the share of zeros falls; a norm in front of φ holds it."
        )


def _span(values: list[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"
