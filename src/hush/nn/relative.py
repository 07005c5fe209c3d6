"""Activations whose threshold is relative to the layer's own size, as functions and as modules.

    relative_relu(x)            = max(x − τ s, 0)                         s = rms(x), of each sample over its units
    relative_soft_threshold(x)  = sign(x) max(|x| − τ s, 0)
    relative_crelu(x)           = min(max(x − τ s, 0), m s)
    relative_cst(x)             = sign(x) min(max(|x| − τ s, 0), m s)

Zeros are exact, and as many as τ says at any size of x: P(z ≤ τ) of a Gaussian layer, by construction. `through_scale`
says whether the gradient goes through s too, as it is, or takes s for a constant. An input of zeros gives zeros, and
gradients of 0.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from hush.nn import moving_thresholds
from hush.theory import ActivationEntry, entry_of

__all__ = [
    "RelativeCReLU",
    "RelativeCST",
    "RelativeReLU",
    "RelativeSoftThreshold",
    "relative_crelu",
    "relative_cst",
    "relative_relu",
    "relative_soft_threshold",
]

Dimensions = int | Sequence[int]


def relative_relu(x: Tensor, threshold: float, *, dim: Dimensions = -1, through_scale: bool = True) -> Tensor:
    """max(x − τ s, 0)."""
    return relative_crelu(x, threshold, math.inf, dim=dim, through_scale=through_scale)


def relative_soft_threshold(x: Tensor, threshold: float, *, dim: Dimensions = -1, through_scale: bool = True) -> Tensor:
    """sign(x) max(|x| − τ s, 0)."""
    return relative_cst(x, threshold, math.inf, dim=dim, through_scale=through_scale)


def relative_crelu(
    x: Tensor, threshold: float, clip: float, *, dim: Dimensions = -1, through_scale: bool = True
) -> Tensor:
    """min(max(x − τ s, 0), m s)."""
    scale = _scale(x, dim, through_scale)
    if clip == math.inf:
        return torch.relu(x - threshold * scale)
    return moving_thresholds.one_sided(x, threshold * scale, clip * scale)


def relative_cst(
    x: Tensor, threshold: float, clip: float, *, dim: Dimensions = -1, through_scale: bool = True
) -> Tensor:
    """sign(x) min(max(|x| − τ s, 0), m s)."""
    scale = _scale(x, dim, through_scale)
    if clip == math.inf:
        return moving_thresholds.odd(x, threshold * scale, torch.full_like(scale, math.inf))
    return moving_thresholds.odd(x, threshold * scale, clip * scale)


def _scale(x: Tensor, dim: Dimensions, through_scale: bool) -> Tensor:
    """The root mean square over `dim`; its derivative at 0 is 0."""
    if not x.dtype.is_floating_point:
        raise ValueError(f"an activation needs a floating-point tensor, got {x.dtype}.")
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    half = x.dtype in (torch.float16, torch.bfloat16)
    norm = torch.linalg.vector_norm(x, dim=dims, keepdim=True, dtype=torch.float32 if half else None)
    scale: Tensor = (norm / math.sqrt(math.prod(x.shape[d] for d in dims))).to(x.dtype)
    return scale if through_scale else scale.detach()


class _Relative(nn.Module):
    """An activation with a threshold of τ times the root mean square of its input."""

    # Its name in the registry.
    activation: ClassVar[str]

    def __init__(
        self, threshold: float, *, dim: Dimensions = -1, through_scale: bool = True, inplace: bool = False
    ) -> None:
        super().__init__()
        self.threshold = float(threshold)
        self.dim = dim
        self.through_scale = through_scale
        if not (math.isfinite(self.threshold) and self.threshold >= 0.0):
            raise ValueError(f"threshold must be finite and at least 0, got {threshold}.")

    @property
    def entry(self) -> ActivationEntry:
        """What the registry says of it."""
        return entry_of(self.activation)

    def extra_repr(self) -> str:
        rest = "" if self.through_scale else ", through_scale=False"
        return f"threshold={self.threshold:g}, dim={self.dim}{rest}"


class _RelativeClipped(_Relative):
    """And a clip of m times the same."""

    def __init__(
        self,
        threshold: float,
        clip: float,
        *,
        dim: Dimensions = -1,
        through_scale: bool = True,
        inplace: bool = False,
    ) -> None:
        super().__init__(threshold, dim=dim, through_scale=through_scale, inplace=inplace)
        self.clip = float(clip)
        if not self.clip > 0.0:
            raise ValueError(f"clip must be positive, got {clip}.")

    def extra_repr(self) -> str:
        return f"clip={self.clip:g}, {super().extra_repr()}"


class RelativeReLU(_Relative):
    """max(x − τ s, 0), s the root mean square of x over `dim` (features last; 1 for channels)."""

    activation = "relative_relu"

    def forward(self, x: Tensor) -> Tensor:
        return relative_relu(x, self.threshold, dim=self.dim, through_scale=self.through_scale)


class RelativeSoftThreshold(_Relative):
    """sign(x) max(|x| − τ s, 0), s the root mean square of x over `dim`."""

    activation = "relative_soft_threshold"

    def forward(self, x: Tensor) -> Tensor:
        return relative_soft_threshold(x, self.threshold, dim=self.dim, through_scale=self.through_scale)


class RelativeCReLU(_RelativeClipped):
    """min(max(x − τ s, 0), m s), s the root mean square of x over `dim`."""

    activation = "relative_crelu"

    def forward(self, x: Tensor) -> Tensor:
        return relative_crelu(x, self.threshold, self.clip, dim=self.dim, through_scale=self.through_scale)


class RelativeCST(_RelativeClipped):
    """sign(x) min(max(|x| − τ s, 0), m s), s the root mean square of x over `dim`."""

    activation = "relative_cst"

    def forward(self, x: Tensor) -> Tensor:
        return relative_cst(x, self.threshold, self.clip, dim=self.dim, through_scale=self.through_scale)
