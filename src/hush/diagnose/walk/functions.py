"""torch's functions by the rule that speaks of them."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

__all__ = ["COPIES", "ELEMENTWISE", "MATRIX_PRODUCTS", "MOVES", "named"]


def named(*names: str) -> frozenset[Any]:
    """The functions of these names in torch.nn.functional, in torch, and as methods of a tensor."""
    found = (getattr(place, name, None) for name in names for place in (F, torch, Tensor))
    return frozenset(function for function in found if callable(function))


def _with_variants(names: Iterable[str]) -> frozenset[Any]:
    names = tuple(names)
    return named(*names, *(f"{name}_" for name in names), *(f"__{name}__" for name in names))


# fmt: off
ELEMENTWISE = _with_variants((
    "add", "sub", "mul", "div", "true_divide", "multiply", "subtract", "divide", "neg", "negative", "pow", "square",
    "sqrt", "rsqrt", "exp", "log", "log1p", "abs", "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "where",
    "masked_fill", "erf", "sin", "cos", "reciprocal", "rsub", "lerp", "addcmul", "sigmoid", "tanh", "softplus",
    "radd", "rmul", "rsub", "rtruediv", "truediv", "iadd", "imul", "isub", "itruediv", "nan_to_num", "sign",
))
# The values stay where they are.
COPIES = named(
    "clone", "contiguous", "detach", "double", "float", "half", "bfloat16", "to", "type", "type_as", "dropout",
    "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "requires_grad_",
)
MOVES = named(
    "__getitem__", "chunk", "channel_shuffle", "expand", "expand_as", "flatten", "flip", "index_select", "movedim",
    "moveaxis", "narrow", "permute", "pixel_shuffle", "pixel_unshuffle", "reshape", "reshape_as", "roll", "select",
    "split", "split_with_sizes", "squeeze", "swapaxes", "t", "tensor_split", "transpose", "unbind", "unflatten",
    "unsqueeze", "view", "view_as", "repeat", "repeat_interleave", "tile", "swapdims", "mT", "T",
) | {Tensor.mT.__get__, Tensor.T.__get__}  # type: ignore[attr-defined]
MATRIX_PRODUCTS = named("matmul", "__matmul__", "bmm", "mm", "__rmatmul__")
# fmt: on
