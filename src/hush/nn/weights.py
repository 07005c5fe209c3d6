"""Three ways to draw a weight tensor of given variance: Gaussian, orthogonal, delta-orthogonal; in place.

All give each entry that is not zero by construction the variance σ²/fan-in, fan-in = (channels in/groups) × kernel
size; a delta-orthogonal kernel is zero off its centre, so there fan-in = channels in/groups.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

__all__ = ["DRAWS", "Weights", "delta_orthogonal_", "fan_in", "gaussian_", "orthogonal_"]

Weights = Literal["gaussian", "orthogonal", "delta_orthogonal"]
Generator = torch.Generator | None


def fan_in(weight: Tensor) -> int:
    """How many inputs one unit sums: weights are (out, in/groups, *kernel)."""
    return math.prod(weight.shape[1:])


def gaussian_(weight: Tensor, variance: float, groups: int = 1, generator: Generator = None) -> Tensor:
    """W_ij ~ N(0, σ²/fan-in)."""
    with torch.no_grad():
        return weight.normal_(0.0, math.sqrt(variance / fan_in(weight)), generator=generator)


def orthogonal_(weight: Tensor, variance: float, groups: int = 1, generator: Generator = None) -> Tensor:
    """W/σ Haar-distributed with orthonormal rows, each group for itself; a kernel as a matrix (out, in × size).

    With more rows than columns no rows are orthonormal: then the columns are, stretched by √(rows/columns).
    """
    with torch.no_grad():
        for block in weight.chunk(groups):
            matrix = _haar(block.flatten(1), variance, generator)
            block.copy_(matrix.view_as(block))
    return weight


def delta_orthogonal_(weight: Tensor, variance: float, groups: int = 1, generator: Generator = None) -> Tensor:
    """An orthogonal matrix at the centre of the kernel, zero around it (Xiao et al. 2018); Linear: `orthogonal_`."""
    with torch.no_grad():
        weight.zero_()
        centre = weight
        for size in weight.shape[:1:-1]:
            centre = centre.select(-1, size // 2)
        for block in centre.chunk(groups):
            block.copy_(_haar(block, variance, generator))
    return weight


DRAWS: dict[str, Callable[[Tensor, float, int, Generator], Tensor]] = {
    "gaussian": gaussian_,
    "orthogonal": orthogonal_,
    "delta_orthogonal": delta_orthogonal_,
}


def _haar(like: Tensor, variance: float, generator: Generator) -> Tensor:
    """A (semi-)orthogonal matrix of the shape of `like`, entries of variance σ²/columns."""
    rows, columns = like.shape
    # QR knows no half precision; float32 loses nothing there.
    dtype = like.dtype if like.dtype in (torch.float32, torch.float64) else torch.float32
    draw = torch.empty(max(rows, columns), min(rows, columns), dtype=dtype, device=like.device)
    q, r = torch.linalg.qr(draw.normal_(generator=generator))
    # The signs of R's diagonal make the distribution uniform (Mezzadri 2007).
    q = q * torch.sgn(torch.diagonal(r))
    matrix: Tensor = (q if rows >= columns else q.mT) * math.sqrt(variance * max(1.0, rows / columns))
    return matrix
