"""Which layer reads which, told from the recorded graph of a run.

Every tensor of that run carries its streams: the weight layers, or the model's input, that it comes from with no other
weight layer in between. A layer that reads only the input is a first layer; one whose output reaches the model's
output with no layer behind it is an output layer. What a plain chain does not have is noted too: streams that join,
normalisations, attention, recurrence.
"""

from typing import Any, NamedTuple

from torch import nn

from hush.nn.flow import INPUT, ActivationCall, Flow, LayerCall, Operation, OperationKind
from hush.nn.graph.nodes import Node
from hush.nn.graph.recorder import Record, record

__all__ = ["flow_of", "trace_flow"]


def trace_flow(model: nn.Module, example: Any) -> Flow:
    """Run `model` on `example` (a tensor, a tuple of arguments, a dictionary of keyword arguments) and watch.

    Leaves the model as it was. BatchNorm is in eval mode here, so that a single input will do.
    """
    return flow_of(record(model, example, as_in_training=False))


def flow_of(run: Record) -> Flow:
    """The flow of a recorded run."""
    reader = _Reader()
    trails: list[_Trail] = []
    for node in run.nodes:
        trails.append(reader.trail(node, [trails[index] for index in node.inputs]))
    outputs = _together([trails[index] for index in run.outputs]).sources - {INPUT}
    return Flow(tuple(reader.calls), tuple(reader.activations), tuple(reader.operations), outputs)


class _Stream(NamedTuple):
    """Where a tensor comes from, and whether an activation or a reduction (a mean, a pooling) came since.

    The two marks tell x from φ(x) and x from its mean, so that x + φ(x) and x/|x| count as streams that join.
    """

    source: str
    activated: bool = False
    reduced: bool = False


_Streams = frozenset[_Stream]


class _Trail(NamedTuple):
    """What a tensor carries: its streams, and the functions it went through since, but activations."""

    streams: _Streams = frozenset()
    through: frozenset[str] = frozenset()

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(stream.source for stream in self.streams)


class _Reader:
    """Passes the trails on, from the inputs of each node to the node."""

    def __init__(self) -> None:
        self.calls: list[LayerCall] = []
        self.activations: list[ActivationCall] = []
        self.operations: list[Operation] = []

    def trail(self, node: Node, given: list[_Trail]) -> _Trail:
        given = [each for each in given if each.streams]
        trail = _together(given)
        if node.kind == "input":
            return _Trail(frozenset({_Stream(INPUT)}))
        if not given and not node.layer:
            return trail
        self._notice(node, given, trail.sources)
        if node.layer:
            self.calls.append(LayerCall(node.layer, trail.sources, trail.through))
            return _Trail(frozenset({_Stream(node.layer)}))
        if node.kind == "activation":
            if node.options["module"]:
                self.activations.append(ActivationCall(trail.sources, trail.through))
            return trail._replace(streams=_activated(trail.streams))
        if not node.moves_only:
            trail = trail._replace(through=trail.through | {node.function})
        return trail._replace(streams=_reduced(trail.streams)) if node.reduces else trail

    def _notice(self, node: Node, given: list[_Trail], sources: frozenset[str]) -> None:
        if node.kind == "attention":
            self._note("attention", node, sources)
        elif node.options.get("recurrent"):
            self._note("recurrence", node, sources)
        elif not sources - {INPUT}:
            # What is done to the input before the first layer is preparation of the data, which the theory allows.
            return
        elif node.kind == "norm":
            self._note("normalisation", node, sources)
        elif node.kind == "activation":
            if not node.options["module"]:
                self._note("activation", node, sources)
        elif len({trail.streams for trail in given}) > 1 or (node.function in _MATRIX_PRODUCTS and len(given) > 1):
            self._note("join", node, sources)

    def _note(self, kind: OperationKind, node: Node, sources: frozenset[str]) -> None:
        self.operations.append(Operation(kind, node.function, node.within, sources))


# Two streams that are multiplied as matrices: every entry of one meets every entry of the other.
_MATRIX_PRODUCTS = ("baddbmm", "bilinear", "bmm", "einsum", "matmul", "mm", "outer")


def _together(trails: list[_Trail]) -> _Trail:
    streams = frozenset[_Stream]().union(*(trail.streams for trail in trails))
    return _Trail(streams, frozenset[str]().union(*(trail.through for trail in trails)))


def _activated(streams: _Streams) -> _Streams:
    return frozenset(stream._replace(activated=True) for stream in streams)


def _reduced(streams: _Streams) -> _Streams:
    return frozenset(stream._replace(reduced=True) for stream in streams)
