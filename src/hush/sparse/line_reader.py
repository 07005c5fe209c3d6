"""Reads the children that a module's forward calls one after another, or says why it does something else.

Such a module is an nn.Sequential that somebody has written out: x = self.fc1(x); x = self.act(x); return self.fc2(x).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from .straight_line import Unreadable, child_named, run_on_symbols

__all__ = ["read_line"]


class _Symbol:
    """What stands for a tensor."""


@dataclass
class _Reader:
    module: nn.Module
    latest: _Symbol = field(default_factory=_Symbol)
    called: list[nn.Module] = field(default_factory=list)

    def look(self, name: str) -> Any:
        child = child_named(self.module, name)
        return lambda x: self.call(child, x)

    def call(self, child: nn.Module, x: object) -> _Symbol:
        if x is not self.latest:
            raise Unreadable(f"gives a {type(child).__name__} something else than what the child before it gave")
        self.called.append(child)
        self.latest = _Symbol()
        return self.latest


def read_line(module: nn.Module) -> list[nn.Module] | str:
    """The children in the order in which they run, or why they do not stand in a line, as the end of a sentence about
    the module's forward."""
    reader = _Reader(module)
    try:
        if run_on_symbols(module, reader.look, reader.latest) is not reader.latest:
            raise Unreadable("returns something else than what its last child gives")
    except Unreadable as reason:
        return str(reason)
    return reader.called
