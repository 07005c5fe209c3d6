"""The five activations as modules, and the way from a design to its module."""

import math
from typing import TYPE_CHECKING

from torch import Tensor, nn

from hush.nn import functional
from hush.theory.edge_of_chaos import CLIPPED

if TYPE_CHECKING:
    from hush.theory.design import Design

__all__ = ["CST", "CReLU", "FATReLU", "ShiftedReLU", "SoftThreshold", "from_design"]


class _Thresholded(nn.Module):
    """An activation with a threshold τ ≥ 0: 0 wherever its input does not pass it."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = float(threshold)
        if not (math.isfinite(self.threshold) and self.threshold >= 0.0):
            raise ValueError(f"threshold must be finite and at least 0, got {threshold}.")

    def extra_repr(self) -> str:
        return f"threshold={self.threshold:g}"


class _Clipped(_Thresholded):
    """And a clip m > 0, the most it gives out."""

    def __init__(self, threshold: float, clip: float) -> None:
        super().__init__(threshold)
        self.clip = float(clip)
        if not self.clip > 0.0:
            raise ValueError(f"clip must be positive, got {clip}.")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, clip={self.clip:g}"


class ShiftedReLU(_Thresholded):
    """ReLU_τ(x) = max(x − τ, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.shifted_relu(x, self.threshold)


class SoftThreshold(_Thresholded):
    """ST_τ(x) = sign(x) max(|x| − τ, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.soft_threshold(x, self.threshold)


class CReLU(_Clipped):
    """CReLU_{τ,m}(x) = min(max(x − τ, 0), m)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.crelu(x, self.threshold, self.clip)


class CST(_Clipped):
    """CST_{τ,m}(x) = sign(x) min(max(|x| − τ, 0), m)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.cst(x, self.threshold, self.clip)


class FATReLU(_Thresholded):
    """FATReLU_τ(x) = x for x > τ, else 0 (Kurtz et al. 2020): for comparison, hush designs none."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.fatrelu(x, self.threshold)


def from_design(design: "Design") -> nn.Module:
    """The activation of a design, at its τ and m."""
    if design.activation in CLIPPED:
        if design.clip is None:
            raise ValueError(f"{design.activation} needs a clip, and this design has none.")
        return (CReLU if design.activation == "crelu" else CST)(design.threshold, design.clip)
    if design.activation not in ("shifted_relu", "soft_threshold"):
        raise ValueError(f"hush.nn has no activation {design.activation!r}.")
    return (ShiftedReLU if design.activation == "shifted_relu" else SoftThreshold)(design.threshold)
