"""Norms and attention that are written out by hand, found in the recorded graph and marked as what they are.

A norm by hand is a product (or a quotient) of x with something of fewer entries made of x alone: x·rsqrt(mean(x²) + ε),
as Hugging Face's Llama has it, or (x − mean)/√(var + ε). Attention by hand is a matrix product of softmax(…) with the
values, where the softmax reads a matrix product of queries and keys.
"""

from dataclasses import replace
from typing import Any

from torch import nn

from hush.nn.graph.nodes import Graph, Kind, Node
from hush.nn.graph.recorder import Record, record

__all__ = ["graph_of", "trace_graph"]

# What may stand between x and the factor that x is divided by, and between logits, softmax and the product with values.
_BETWEEN: frozenset[Kind] = frozenset({"add", "scale", "rearrange", "pool", "other", "product", "concat"})
_MATRIX_PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm")


def trace_graph(model: nn.Module, example: Any) -> Graph:
    """Run `model` once on `example` and return what was seen; leaves the model as it was.

    Dropout is off. BatchNorm works by the statistics of the example, as in training, because that is how the network
    starts to train; its running statistics are put back afterwards.

    Arguments:
        example: a tensor, a tuple of arguments, or a dictionary of keyword arguments (input_ids=…).
    """
    return graph_of(record(model, example))


def graph_of(run: Record) -> Graph:
    """The recorded run with the norms and the attention in it that are written by hand marked as such."""
    nodes = list(run.nodes)
    for node in run.nodes:
        if node.kind == "product" and node.function in ("mul", "div"):
            _mark_norm(nodes, node)
        elif node.kind == "product" and node.function in _MATRIX_PRODUCTS:
            _mark_attention(nodes, node)
    return Graph(tuple(nodes), run.outputs)


def _mark_norm(nodes: list[Node], node: Node) -> None:
    for own, factor in (node.inputs, node.inputs[::-1]):
        small, large = nodes[factor], nodes[own]
        if small.feature_axis is not None and small.features == large.features and large.features != 1:
            continue  # a gate of full width; a norm has one factor for all features
        steps = _steps_between(nodes, factor, own)
        if steps is None or not any(nodes[step].kind == "pool" or nodes[step].reduces for step in steps):
            continue
        centred = large.kind == "add" and large.options.get("sign") == -1.0 and len(large.inputs) == 2
        options = {"norm": "layer" if centred else "rms", "eps": None, "weight": "", "bias": "", "groups": None}
        nodes[node.index] = replace(node, kind="norm", inputs=(own,), options=options)
        for step in steps:
            nodes[step] = replace(nodes[step], kind="other", options={**nodes[step].options, "part_of": node.index})
        return


def _steps_between(nodes: list[Node], end: int, start: int) -> set[int] | None:
    """The nodes on the way from `start` to `end`, `end` too; None where `end` is made of anything else as well."""
    found: set[int] = set()
    # The mean that is taken out of x, and x itself, may come from what x was made of.
    allowed = {start, *(nodes[start].inputs if nodes[start].kind in ("add", "rearrange") else ())}
    open_ends = [end]
    while open_ends:
        index = open_ends.pop()
        if index in allowed or index in found:
            continue
        node = nodes[index]
        if node.kind not in _BETWEEN or node.parameters or not node.inputs or index < min(allowed):
            return None
        found.add(index)
        open_ends += node.inputs
    return found or None


def _mark_attention(nodes: list[Node], node: Node) -> None:
    if len(node.inputs) != 2:
        return
    for weights, values in (node.inputs, node.inputs[::-1]):
        softmax = _back_to(nodes, weights, lambda each: each.function == "softmax")
        if softmax is None:
            continue
        logits = _back_to(
            nodes, nodes[softmax].inputs[0], lambda each: each.kind == "product" and each.function in _MATRIX_PRODUCTS
        )
        if logits is None or len(nodes[logits].inputs) != 2:
            continue
        query, key = nodes[logits].inputs
        options = {"causal": None, "masked": None, "factor": None, "logits": logits}
        nodes[node.index] = replace(node, kind="attention", inputs=(query, key, values), options=options)
        step = weights
        while step != logits:
            nodes[step] = replace(nodes[step], kind="other", options={**nodes[step].options, "part_of": node.index})
            step = nodes[step].inputs[0]
        nodes[logits] = replace(nodes[logits], kind="other", options={**nodes[logits].options, "part_of": node.index})
        return


def _back_to(nodes: list[Node], index: int, wanted: Any) -> int | None:
    """The first such node on the way back along first inputs, through what changes no more than scale and place."""
    while not wanted(nodes[index]):
        node = nodes[index]
        if node.kind not in ("rearrange", "scale", "add", "other") or not node.inputs or node.parameters:
            return None
        index = node.inputs[0]
    return index
