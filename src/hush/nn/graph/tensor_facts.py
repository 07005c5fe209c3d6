"""What the recorder reads off a tensor or a call: moments, which features, a function's plain name, the call again."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

__all__ = ["call_again", "convolution_again", "moments", "plain_name", "range_of", "varying_axis"]


def moments(tensor: Tensor, axis: int | None) -> tuple[float, float, float, float]:
    """Mean, second moment, fluctuation and inverse fluctuation; see `Node`."""
    if not tensor.is_floating_point() or tensor.numel() == 0 or tensor.is_sparse:
        return math.nan, math.nan, math.nan, math.nan
    values = tensor.detach().double()
    others = [each for each in range(values.dim()) if each != axis]
    if axis is None or not others:
        mean, square = float(values.mean()), float(values.square().mean())
        variance = max(square - mean**2, 0.0)
        return mean, square, variance, 1.0 / max(variance, 1e-30)
    means, squares = values.mean(others), values.square().mean(others)
    mean, square = float(means.mean()), float(squares.mean())
    variances = (squares - means.square()).clamp_min(0.0)
    return mean, square, float(variances.mean()), float(variances.clamp_min(1e-30).reciprocal().mean())


def range_of(numbers: Tensor) -> tuple[int, int] | None:
    """From the lowest to behind the highest, if none between is missing."""
    counts = torch.bincount(numbers.flatten())
    (present,) = counts.nonzero(as_tuple=True)
    low, high = int(present[0]), int(present[-1]) + 1
    return (low, high) if len(present) == high - low else None


def varying_axis(numbers: Tensor) -> int | None:
    """The last axis along which the features change."""
    for axis in reversed(range(numbers.dim())):
        if numbers.shape[axis] > 1 and bool((numbers.narrow(axis, 0, 1) != numbers.narrow(axis, 1, 1)).any()):
            return axis
    return None


_SAME = {"truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub"}


def plain_name(func: Any) -> str:
    """add for add, add_, __add__, __iadd__ and __radd__; matmul for __matmul__."""
    own = str(getattr(func, "__name__", func))
    name = own.strip("_")
    if own.startswith("__") and name[:1] in "ir" and name[1:] in ("add", "sub", "mul", "truediv", "matmul", "pow"):
        name = name[1:]
    return _SAME.get(name, name)


def convolution_again(module: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, weight: module._conv_forward(x, weight, None)


def call_again(
    func: Any, args: Any, kwargs: Any, read: Tensor, weight: Tensor, bias: Tensor | None
) -> Callable[[Tensor, Tensor], Tensor]:
    def again(x: Tensor, other: Tensor) -> Tensor:
        swapped: dict[int, Tensor | None] = {id(read): x, id(weight): other}
        if bias is not None:
            swapped[id(bias)] = None if plain_name(func).startswith("conv") else torch.zeros_like(bias)
        new: Any = tree_map(lambda each: swapped.get(id(each), each), (args, kwargs))
        result: Tensor = func(*new[0], **new[1])
        return result

    return again
