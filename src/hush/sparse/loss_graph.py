"""The graph of a loss, as far as a fused step must know it: its stretches, its leaves, and who reads which memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .gradients import Edge, StretchFunction
from .layout import storage_address
from .lone_linear import LinearFunction

__all__ = ["LossGraph"]

_STRETCH: Any = StretchFunction._backward_cls
_LINEAR: Any = LinearFunction._backward_cls
_OURS: tuple[Any, ...] = (_STRETCH, _LINEAR, Edge._backward_cls)


class LossGraph:
    """What the backward of a loss will visit.

    Attributes:
        stretches: the nodes of the stretches.
        linears: the nodes of single Linears whose forward is dense.
        leaves: every leaf by its id.
        edges: how many edges lead to each of them.
        readers: how many nodes read each piece of memory in the backward.
        has_foreign_functions: some node runs Python code of somebody else's. It may look at how the backward was
            called: reentrant checkpoints refuse one that names its inputs.
    """

    def __init__(self, loss: Tensor) -> None:
        self.stretches: list[Any] = []
        self.linears: list[Any] = []
        self.leaves: dict[int, Tensor] = {}
        self.edges: Counter[int] = Counter()
        self.readers: Counter[int] = Counter()
        self.has_foreign_functions = False
        for node, leaves in _nodes(loss):
            if type(node) is _STRETCH:
                self.stretches.append(node)
                self.readers.update(node.call.memories)
            elif type(node) is _LINEAR:
                self.linears.append(node)
                x, _ = node.saved_tensors
                self.readers.update([*node.memories, *([] if x is None else [storage_address(x)])])
            else:
                self.readers.update(storage_address(t) for t in _saved_tensors(node))
            if isinstance(node, torch.autograd.function.BackwardCFunction) and type(node) not in _OURS:
                self.has_foreign_functions = True
            ids = [id(leaf) for leaf in leaves]
            self.edges.update(ids)
            self.leaves.update(zip(ids, leaves, strict=True))


def _nodes(loss: Tensor) -> Iterator[tuple[Any, Sequence[Tensor]]]:
    """Every node of the graph of the loss but those of its leaves, and the leaves that follow it."""
    seen: set[Any] = set()
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        following, leaves = _following(node)
        waiting += following
        yield node, leaves


def _following(node: Any) -> tuple[list[Any], Sequence[Tensor]]:
    """The nodes and the leaves that follow a node."""
    if type(node) is _STRETCH and all(p.grad_fn is None for p in node.parameters):
        # torch would make an object for each of hundreds of parameters; the node knows them already.
        needed = node.needs_input_grad[-len(node.parameters) :]
        leaves = (
            node.parameters if all(needed) else [p for p, need in zip(node.parameters, needed, strict=True) if need]
        )
        return [node.before], leaves
    nodes, variables = [], []
    for following, _ in node.next_functions:
        variable = getattr(following, "variable", None)
        if variable is None:
            nodes.append(following)
        else:
            variables.append(variable)
    return nodes, variables


@cache
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))


def _saved_tensors(node: Any) -> list[Tensor]:
    """What a node will read in the backward."""
    found: list[Any] = []
    for name in _saved_names(node.__class__):
        try:
            value = getattr(node, name)
        except RuntimeError:  # freed, or changed in place: the backward will say so
            continue
        found += value if isinstance(value, (list, tuple)) else [value]
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        found += node.saved_tensors
    return [value for value in found if isinstance(value, Tensor)]
