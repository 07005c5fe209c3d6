"""The activations the kernels know, as plain values.

    kind            φ(x)                                                   modules
    one-sided       clamp(x − τ, 0, m)                                     ReLU, ShiftedReLU, CReLU
    odd             clamp(x − clamp(x, −τ, τ), −m, m)                      SoftThreshold, CST
    jump            x where x > τ, else 0                                  FATReLU
    identity        x                                                      what a Linear reads as it comes

One-sided and odd ones may be relative: τ and m are then in units of the root mean square of each sample.

The slope is 0 where φ = 0 and, with a finite m, where |φ| ≥ m; else 1, as in `hush.nn.functional`. At a NaN it is
what torch's vectorised backwards have: 1 for ReLU, ShiftedReLU and FATReLU, else 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hush.nn import functional
from hush.nn.recognise import recognise
from hush.theory import Kernel as Kind

__all__ = ["Activation", "Kind", "activation_of"]


@dataclass(frozen=True)
class Activation:
    """φ as (kind, threshold τ, clip m); m = ∞ where nothing is clipped.

    Attributes:
        relative: whether τ and m are in units of the sample's root mean square.
        through_scale: of a relative one, whether the gradient goes through that too.
    """

    kind: Kind = Kind.ONE_SIDED
    threshold: float = 0.0
    clip: float = math.inf
    relative: bool = False
    through_scale: bool = True

    def __post_init__(self) -> None:
        if not -math.inf < self.threshold < math.inf:
            raise ValueError(f"The threshold is {self.threshold}; it must be a finite number.")
        if self.kind != Kind.ONE_SIDED and self.threshold < 0:
            raise ValueError(
                f"The threshold is {self.threshold}; an odd activation or one with a jump needs one of at least 0."
            )
        if not self.clip > 0:
            raise ValueError(f"The clip is {self.clip}; it must be positive.")
        if self.relative and self.kind not in (Kind.ONE_SIDED, Kind.ODD):
            raise ValueError(f"Only one-sided and odd activations can be relative, not {self.kind.name}.")

    def __call__(self, x: Tensor) -> Tensor:
        """φ(x) with torch's own operations: the path of every tensor that the kernels do not take."""
        if self.kind is Kind.IDENTITY:
            return x
        if self.relative:
            relative = functional.relative_cst if self.kind is Kind.ODD else functional.relative_crelu
            return relative(x, self.threshold, self.clip, through_scale=self.through_scale)
        if self.kind is Kind.JUMP:
            return functional.fatrelu(x, self.threshold)
        if self.kind is Kind.ODD:
            return functional.cst(x, self.threshold, self.clip)
        # torch.relu, and not the shifted one at τ = 0: it is what nn.ReLU runs, and the faster of the two.
        if self.threshold == 0.0 and self.clip == math.inf:
            return torch.relu(x)
        return functional.crelu(x, self.threshold, self.clip)

    def slope(self, y: Tensor) -> Tensor:
        """φ′ as a function of φ, as the kernels have it. A relative φ has no such function."""
        silent = y == 0
        if self.clip != math.inf:
            silent |= ~(y.abs() < torch.tensor(self.clip, dtype=y.dtype, device=y.device))
        elif self.kind is Kind.ODD:
            silent |= y.isnan()
        return (~silent).to(y.dtype)

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

    @classmethod
    def identity(cls) -> Activation:
        """φ(x) = x: what a Linear makes of an input whose zeros are there already. Its slope is taken as 0 at 0."""
        return cls(Kind.IDENTITY)


def activation_of(module: nn.Module, *, relative: bool = False) -> Activation | None:
    """The module's φ, or None when the kernels do not know it; those of chains know relative ones too."""
    if any(isinstance(value, Tensor) for value in (*module.__dict__.values(), *module._parameters.values())):
        return None  # a threshold that is a tensor may be learnt, or changed in place
    found = recognise(module)
    if found is None:
        return None
    if found.entry.relative:
        if not relative or getattr(module, "dim", None) != -1:
            return None  # the units of a sample are the last dimension of what a Linear reads
        kind = Kind.ODD if found.entry.odd else Kind.ONE_SIDED
        return Activation(kind, found.threshold, found.clip, relative=True, through_scale=bool(found.through_scale))
    if found.kernel is None:
        return None
    if found.kernel is Kind.ODD and found.threshold == 0.0:
        return None  # nothing is silent, and torch's Hardtanh has slope 1 where the kernels have 0
    return Activation(found.kernel, found.threshold, found.clip)
