"""The activations the engine knows, as plain values.

    kind            φ(x)                                                   modules
    one-sided       clamp(x − τ, 0, m)                                     ReLU, ShiftedReLU, CReLU
    odd             clamp(x − clamp(x, −τ, τ), −m, m)                      SoftThreshold, CST
    jump            x where x > τ, else 0                                  FATReLU

The slope is 0 where φ = 0 and, with a finite m, where |φ| ≥ m; else 1, as in `hush.nn.functional`. At a NaN it is
what torch's vectorised backwards have: 1 for ReLU, ShiftedReLU and FATReLU, else 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Activation", "Kind", "activation_of"]


class Kind(IntEnum):
    ONE_SIDED = 0
    ODD = 1
    JUMP = 2


@dataclass(frozen=True)
class Activation:
    """φ as (kind, threshold τ, clip m); m = ∞ where nothing is clipped."""

    kind: Kind = Kind.ONE_SIDED
    threshold: float = 0.0
    clip: float = math.inf

    def __post_init__(self) -> None:
        if math.isnan(self.threshold) or math.isinf(self.threshold):
            raise ValueError(f"The threshold is {self.threshold}; it must be a finite number.")
        if self.kind != Kind.ONE_SIDED and self.threshold < 0:
            raise ValueError(
                f"The threshold is {self.threshold}; an odd activation or one with a jump needs one of at least 0."
            )
        if not self.clip > 0:
            raise ValueError(f"The clip is {self.clip}; it must be positive.")

    def __call__(self, x: Tensor) -> Tensor:
        """φ(x) with torch's own operations: the path of every tensor that the engine does not take."""
        return _Phi.apply(x, self.kind, self.threshold, self.clip)

    # Named after the modules.
    @classmethod
    def relu(cls) -> Activation:
        return cls()

    @classmethod
    def shifted_relu(cls, threshold: float) -> Activation:
        return cls(Kind.ONE_SIDED, threshold)

    @classmethod
    def crelu(cls, threshold: float, clip: float) -> Activation:
        return cls(Kind.ONE_SIDED, threshold, clip)

    @classmethod
    def soft_threshold(cls, threshold: float) -> Activation:
        return cls(Kind.ODD, threshold)

    @classmethod
    def cst(cls, threshold: float, clip: float) -> Activation:
        return cls(Kind.ODD, threshold, clip)

    @classmethod
    def fatrelu(cls, threshold: float) -> Activation:
        return cls(Kind.JUMP, threshold)


class _Phi(torch.autograd.Function):
    """φ, and its slope from φ alone: 0 at the kinks, where torch.clamp's would be 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kind: Kind, threshold: float, clip: float) -> Tensor:
        top = None if math.isinf(clip) else clip
        if kind == Kind.JUMP:
            y = x.masked_fill(x <= threshold, 0.0)
        elif kind == Kind.ODD:
            y = x - x.clamp(-threshold, threshold)
            y = y if top is None else y.clamp(-top, top)
        else:
            y = (x - threshold if threshold else x).clamp(0.0, top)
        ctx.save_for_backward(y)
        ctx.kind, ctx.clip = kind, top
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        silent = y == 0
        if ctx.clip is not None:
            silent |= ~(y.abs() < torch.tensor(ctx.clip, dtype=y.dtype, device=y.device))
        elif ctx.kind == Kind.ODD:
            silent |= y.isnan()
        return grad.masked_fill(silent, 0.0), None, None, None


_BY_NAME = {
    "ShiftedReLU": lambda m: Activation.shifted_relu(float(m.threshold)),
    "CReLU": lambda m: Activation.crelu(float(m.threshold), float(m.clip)),
    "SoftThreshold": lambda m: Activation.soft_threshold(float(m.threshold)),
    "CST": lambda m: Activation.cst(float(m.threshold), float(m.clip)),
    "FATReLU": lambda m: Activation.fatrelu(float(m.threshold)),
}


def activation_of(module: nn.Module) -> Activation | None:
    """The module's φ, or None when the engine does not know it.

    hush's modules are known by class name, so that this package does not import hush.nn; a user's own class that
    merely shares a name is not taken.
    """
    if type(module) is nn.ReLU:
        return Activation.relu()
    if type(module).__module__.split(".")[0] != "hush":
        return None
    make = _BY_NAME.get(type(module).__name__)
    return make(module) if make else None
