"""Activations whose threshold is relative to the layer's own size, as functions of `hush.nn.functional`.

    relative_relu(x)            = max(x − τ s, 0)                         s = rms(x), of each sample over its units
    relative_soft_threshold(x)  = sign(x) max(|x| − τ s, 0)
    relative_crelu(x)           = min(max(x − τ s, 0), m s)
    relative_cst(x)             = sign(x) min(max(|x| − τ s, 0), m s)

Zeros are exact, and as many as τ says at any size of x: P(z ≤ τ) of a Gaussian layer, by construction. At the kinks no
gradient passes, as everywhere in `hush.nn.functional`. An input of zeros gives zeros, and gradients of 0.

Arguments of all:
    dim: where the units are, over which s is taken: the last dimension, 1 for a convolution's channels, or several.
    through_scale: whether the gradient goes through s as well, or takes s for a constant.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from hush.nn import moving_thresholds

__all__ = ["Dimensions", "relative_crelu", "relative_cst", "relative_relu", "relative_soft_threshold"]

Dimensions = int | Sequence[int]


def relative_relu(x: Tensor, threshold: float, *, dim: Dimensions = -1, through_scale: bool = True) -> Tensor:
    """max(x − τ s, 0), s the root mean square of x over `dim`."""
    if has_torch_function_unary(x):
        return _handed_over(relative_relu, x, threshold, dim=dim, through_scale=through_scale)
    return torch.relu(x - threshold * _scale(x, dim, through_scale))


def relative_soft_threshold(x: Tensor, threshold: float, *, dim: Dimensions = -1, through_scale: bool = True) -> Tensor:
    """sign(x) max(|x| − τ s, 0), s the root mean square of x over `dim`."""
    if has_torch_function_unary(x):
        return _handed_over(relative_soft_threshold, x, threshold, dim=dim, through_scale=through_scale)
    scale = _scale(x, dim, through_scale)
    return moving_thresholds.odd(x, threshold * scale, torch.full_like(scale, math.inf))


def relative_crelu(
    x: Tensor, threshold: float, clip: float, *, dim: Dimensions = -1, through_scale: bool = True
) -> Tensor:
    """min(max(x − τ s, 0), m s), s the root mean square of x over `dim`."""
    if has_torch_function_unary(x):
        return _handed_over(relative_crelu, x, threshold, clip, dim=dim, through_scale=through_scale)
    if clip == math.inf:
        return relative_relu(x, threshold, dim=dim, through_scale=through_scale)
    scale = _scale(x, dim, through_scale)
    return moving_thresholds.one_sided(x, threshold * scale, clip * scale)


def relative_cst(
    x: Tensor, threshold: float, clip: float, *, dim: Dimensions = -1, through_scale: bool = True
) -> Tensor:
    """sign(x) min(max(|x| − τ s, 0), m s), s the root mean square of x over `dim`."""
    if has_torch_function_unary(x):
        return _handed_over(relative_cst, x, threshold, clip, dim=dim, through_scale=through_scale)
    if clip == math.inf:
        return relative_soft_threshold(x, threshold, dim=dim, through_scale=through_scale)
    scale = _scale(x, dim, through_scale)
    return moving_thresholds.odd(x, threshold * scale, clip * scale)


def _handed_over(function: Callable[..., Tensor], x: Tensor, *parameters: float, **options: Any) -> Tensor:
    """To a tensor subclass or to who watches torch's functions, as torch's own functions do it."""
    result: Tensor = handle_torch_function(function, (x,), x, *parameters, **options)
    return result


def _scale(x: Tensor, dim: Dimensions, through_scale: bool) -> Tensor:
    """The root mean square over `dim`; its derivative at 0 is 0."""
    if not x.dtype.is_floating_point:
        raise ValueError(f"an activation needs a floating-point tensor, got {x.dtype}.")
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    half = x.dtype in (torch.float16, torch.bfloat16)
    if not through_scale:
        x = x.detach()
    # Half precision would lose the sum of the squares.
    norm = torch.linalg.vector_norm(x, dim=dims, keepdim=True, dtype=torch.float32 if half else None)
    units = 1
    for each in dims:  # a loop, which torch.compile takes with sizes that change, as it does not take math.prod
        units = units * x.shape[each]
    scale: Tensor = (norm / units**0.5).to(x.dtype)
    return scale
