"""Finds the activation → Linear runs of a model: in nn.Sequential by order, elsewhere by data flow (torch.fx)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeGuard

import torch
import torch.fx
from torch import nn

from .activation import activation_of

__all__ = ["Run", "find_in_graph", "find_in_sequential", "knows"]


@dataclass
class Run:
    """Consecutive pairs: activations[k] feeds linears[k], which feeds only activations[k + 1]."""

    activations: list[nn.Module] = field(default_factory=list)
    linears: list[nn.Linear] = field(default_factory=list)
    start: int = 0  # position of the first activation, inside a Sequential


def knows(module: nn.Module) -> bool:
    return activation_of(module) is not None


def plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    # A subclass, a parametrisation or a quantised twin computes something else.
    return type(module) is nn.Linear and "weight" in module._parameters


def find_in_sequential(container: nn.Sequential, taken: set[int]) -> list[Run]:
    """Runs of children; `taken` gets the ids of their linears, so that none is run by two links."""
    runs, children, i = [], list(container.children()) if type(container) is nn.Sequential else [], 0
    if len(children) != len(container):  # a child that is listed twice
        children = [container[k] for k in range(len(container))]
    while i + 1 < len(children):
        run = Run(start=i)
        while i + 1 < len(children):
            activation, linear = children[i], children[i + 1]
            if not (knows(activation) and plain_linear(linear)) or id(linear) in taken:
                break
            run.activations.append(activation)
            run.linears.append(linear)
            taken.add(id(linear))
            i += 2
        if run.linears:
            runs.append(run)
        else:
            i += 1
    return runs


class _Tracer(torch.fx.Tracer):
    """Modules that are run by a link already, and the ones we look for, are leaves."""

    def is_leaf_module(self, m: nn.Module, name: str) -> bool:
        return knows(m) or "forward" in m.__dict__ or super().is_leaf_module(m, name)


def find_in_graph(model: nn.Module, taken: set[int]) -> tuple[list[Run], str | None]:
    """Runs by data flow, and why there are none if the model cannot be traced."""
    try:
        graph = _Tracer().trace(model)
    except Exception as error:  # tracing runs the user's forward: anything may happen there
        return [], f"its forward cannot be traced ({type(error).__name__}: {str(error).splitlines()[0][:120]})"
    modules = dict(model.named_modules())
    calls: dict[int, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            calls[id(modules[node.target])] = calls.get(id(modules[node.target]), 0) + 1

    def module(node: torch.fx.Node) -> nn.Module | None:
        # A module that is called twice would have to behave in two ways.
        found = modules.get(node.target) if node.op == "call_module" else None
        return found if found is not None and calls[id(found)] == 1 and len(node.args) == 1 else None

    def next_pair(node: torch.fx.Node) -> tuple[nn.Module, nn.Linear, torch.fx.Node] | None:
        activation = module(node)
        if activation is None or not knows(activation) or len(node.users) != 1:
            return None
        (after,) = node.users
        linear = module(after)
        if linear is None or not plain_linear(linear) or id(linear) in taken:
            return None
        return activation, linear, after

    runs = []
    for node in graph.nodes:
        run, at = Run(), node
        while (pair := next_pair(at)) is not None:
            run.activations.append(pair[0])
            run.linears.append(pair[1])
            taken.add(id(pair[1]))
            if len(pair[2].users) != 1:
                break
            (at,) = pair[2].users
        if run.linears:
            runs.append(run)
    return runs, None
