"""A module that computes φ(gate(x)) · up(x), as feed-forward blocks of Llama do: `up` is needed where φ is not zero.

Its forward is read (`hush.sparse.gated_reader`), so it is known that nobody but the product sees what `up` gives. The
gate and everything behind the product are called as they are; φ and the product are torch's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .conditions import backend_of
from .gated_reader import GatedReading, read_gated
from .lone_linear import LoneLinear
from .own_forwards import STATE
from .settings import Settings
from .sight import expect_active
from .stretch import LOOKS
from .witness import Witness

__all__ = ["GatedModule"]


class GatedModule:
    """What an accelerated gated module knows of itself."""

    def __init__(self, module: nn.Module, settings: Settings) -> None:
        self.module, self.settings = module, settings
        self.density = 0.0  # of φ(gate(x)), when it was last looked at
        self._calls = 0
        self._reading: GatedReading | None = None
        self._witness: Witness | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy looks at its own children.
        return {**self.__dict__, "_reading": None, "_witness": None}

    def run(self, x: Tensor) -> Tensor | None:
        """The module's output, or None where its own forward is to run."""
        backend = backend_of(x)
        reading = self._read() if backend is not None and not self.settings.frozen else None
        if backend is None or reading is None or x.shape[-1] == 0:
            return None
        up: LoneLinear = reading.up.__dict__[STATE]
        if not self._may_pay(up.limit_of(x.numel() // x.shape[-1], backend)):
            return None
        a: Tensor = reading.phi(reading.gate(x))
        found = up.run_at(a, x, backend) if backend_of(a) is backend and a.shape[:-1] == x.shape[:-1] else None
        if found is None:
            out: Tensor = a * reading.up(x)
        else:
            u, active = found
            self.density = active / max(a.numel(), 1)
            out = a * u
            expect_active(out, active)
        for module in reading.behind:
            out = module(out)
        return out

    def _may_pay(self, limit: float) -> bool:
        """Given the density up to which it does."""
        # Checkpointing runs the same input twice and must find the same nodes, and whoever packs what is saved sees it.
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            return False
        self._calls += 1
        return limit > 0.0 and (self.density <= limit or self._calls % LOOKS == 1)

    def _read(self) -> GatedReading | None:
        if self._witness is None or not self._witness.holds():
            found = read_gated(self.module)
            self._reading = None if isinstance(found, str) else found
            self._witness = _watch(self.module)
        reading = self._reading
        return reading if reading is not None and type(self.module).forward.__code__ is reading.code else None


def _watch(module: nn.Module) -> Witness:
    """That the module, its children, and what φ and `up` are made of stay as they are."""
    witness = Witness()
    witness.children(module)
    for child in module.children():
        witness.module(child)
        for key in child.__dict__:
            if not key.startswith("_"):
                witness.entry(child.__dict__, key)
    return witness
