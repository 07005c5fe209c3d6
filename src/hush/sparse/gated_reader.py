"""Reads φ(gate(x)) · up(x), and what comes behind it, off a module's forward, or says why it is something else."""

from __future__ import annotations

import types
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from .activation import activation_of
from .own_forwards import does_nothing, has_own_forward, is_quiet, is_sparse_linear
from .straight_line import Unreadable, child_named, code_of, run_on_symbols

__all__ = ["GatedReading", "read_gated"]


@dataclass(frozen=True)
class GatedReading:
    """A gated module as its forward has it now.

    Attributes:
        gate, up: Linears that read the module's input.
        phi: the activation behind the gate.
        behind: the children that the product goes through, in order.
        code: of the class's forward.
    """

    gate: nn.Module
    up: nn.Module
    phi: nn.Module
    behind: tuple[nn.Module, ...]
    code: types.CodeType


@dataclass(frozen=True)
class _Symbol:
    """What stands for a tensor, and what it went through."""

    stage: str = "input"  # → linear → active; linear · active → product
    linear: nn.Module | None = None
    phi: nn.Module | None = None
    up: nn.Module | None = None
    behind: tuple[nn.Module, ...] = ()

    def __mul__(self, other: Any) -> _Symbol:
        if isinstance(other, _Symbol):
            for active, up in ((self, other), (other, self)):
                if active.stage == "active" and up.stage == "linear" and up.linear is not active.linear:
                    return replace(active, stage="product", up=up.linear)
        raise Unreadable("multiplies something else than an activation and a Linear")


@dataclass
class _Reader:
    module: nn.Module
    listened: bool = False
    calls: int = 0  # of children that do anything

    def is_bare(self, child: nn.Module) -> bool:
        """Whether nobody sees what it gives, and it is its class that computes it."""
        return is_quiet(child) or (self.listened and not has_own_forward(child))

    def look(self, name: str) -> Any:
        child = child_named(self.module, name)
        return lambda x: self.call(child, x)

    def call(self, child: nn.Module, x: object) -> _Symbol:
        """The symbol behind a child."""
        if not isinstance(x, _Symbol):
            raise Unreadable(f"gives a {type(child).__name__} something else than one tensor")
        if x.stage != "product" and does_nothing(child):
            return x
        self.calls += 1
        if x.stage == "product":
            return replace(x, behind=(*x.behind, child))
        if x.stage == "input" and is_sparse_linear(child) and "weight" in child._parameters:
            return replace(x, stage="linear", linear=child)
        if x.stage == "linear" and self.is_bare(child) and activation_of(child) is not None:
            if getattr(child, "inplace", False):
                raise Unreadable("changes a tensor in place")
            return replace(x, stage="active", phi=child)
        raise Unreadable(f"has a {type(child).__name__} where none belongs")


def read_gated(module: nn.Module, *, listened: bool = False) -> GatedReading | str:
    """The gated module, or why it is none, as the end of a sentence about its forward.

    With `listened`, also where hooks listen inside: what it would be without them, not what may run now.
    """
    reader = _Reader(module, listened)
    try:
        code = code_of(module)
        found = run_on_symbols(module, reader.look, _Symbol())
        if not isinstance(found, _Symbol) or found.stage != "product":
            raise Unreadable("multiplies no activation with a Linear")
        assert found.linear is not None
        assert found.phi is not None
        assert found.up is not None
        if not reader.is_bare(found.up):
            raise Unreadable("has a Linear with a hook or a forward of its own")
        if reader.calls != 3 + len(found.behind):
            raise Unreadable("calls a child whose output it drops, or one twice")
        return GatedReading(found.linear, found.up, found.phi, found.behind, code)
    except Unreadable as reason:
        return str(reason)
