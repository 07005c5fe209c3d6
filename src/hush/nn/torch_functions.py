"""torch's functions by what they do to a stream of activations; `hush.nn.graph` asks."""

from collections.abc import Iterable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

from hush.nn import functional

__all__ = [
    "ADDITIONS",
    "ATTENTIONS",
    "CONVERSIONS",
    "ELEMENTWISE_ACTIVATIONS",
    "FACTORIES",
    "HUSH_ACTIVATIONS",
    "JOINTS",
    "LINEAR_MAPS",
    "MULTIPLICATIONS",
    "NORMALISATIONS",
    "OPENED",
    "POOLINGS",
    "PRODUCTS",
    "REARRANGEMENTS",
    "TABLES",
]


def _opened(function: Any) -> Any:
    """The same function, which does not hand itself over to who watches, but runs: so what it calls is seen."""
    inside = {**function.__globals__, "has_torch_function": lambda _: False}
    copy = FunctionType(function.__code__, inside, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _everywhere(names: Iterable[str]) -> frozenset[Any]:
    """The functions of these names in torch.nn.functional, in torch, and as methods of a tensor."""
    found = (getattr(place, name, None) for name in names for place in (F, torch, Tensor))
    return frozenset(function for function in found if callable(function))


# fmt: off
_ACTIVATIONS = (
    "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "prelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign", "tanh",
    "tanhshrink", "threshold",
)
_FACTORIES = (
    "empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like",
    "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros",
)
_REARRANGEMENTS = (
    "__get__", "__getitem__", "__setitem__", "alpha_dropout", "bfloat16", "cat", "channel_shuffle", "chunk", "clone",
    "concat", "concatenate", "contiguous", "detach", "double", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "expand", "expand_as", "feature_alpha_dropout", "flatten", "flip", "float", "half", "index_select", "movedim",
    "narrow", "permute", "pixel_shuffle", "pixel_unshuffle", "repeat", "requires_grad_", "reshape", "reshape_as",
    "roll", "select", "split", "squeeze", "stack", "swapaxes", "t", "tile", "to", "transpose", "type", "unbind",
    "unflatten", "unsqueeze", "view", "view_as",
)
# fmt: on
# The functions of hush.nn.functional hand themselves over as torch's own do.
HUSH_ACTIVATIONS = frozenset(getattr(functional, name) for name in functional.__all__)
ELEMENTWISE_ACTIVATIONS = _everywhere([*_ACTIVATIONS, *(f"{name}_" for name in _ACTIVATIONS)])
# They take the shape and the dtype of a tensor, and nothing of its values.
FACTORIES = _everywhere(_FACTORIES)
NORMALISATIONS = _everywhere(
    ("batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm")
)
ATTENTIONS = _everywhere(
    ("multi_head_attention_forward", "scaled_dot_product_attention", "_native_multi_head_attention")
)
# Two streams that are multiplied as matrices: every entry of one meets every entry of the other.
PRODUCTS = _everywhere(("baddbmm", "bilinear", "bmm", "einsum", "matmul", "__matmul__", "mm", "outer"))
# They move values, or copy or convert them, and change none: dropout too, for it is eval mode in which hush looks.
REARRANGEMENTS = _everywhere(_REARRANGEMENTS)
TABLES = _everywhere(("embedding", "embedding_bag"))
# Of those the ones that join several tensors, and those that change the dtype or nothing at all.
JOINTS = _everywhere(("cat", "concat", "concatenate", "stack"))
_DROPOUTS = ("alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")
CONVERSIONS = _everywhere([*_DROPOUTS, "bfloat16", "double", "float", "half", "requires_grad_", "to", "type"])
_SIGNS = ("{}", "{}_", "__{}__", "__i{}__", "__r{}__")
ADDITIONS = _everywhere([sign.format(name) for name in ("add", "sub", "subtract", "rsub") for sign in _SIGNS])
MULTIPLICATIONS = _everywhere(
    [sign.format(name) for name in ("mul", "multiply", "div", "divide", "true_divide", "truediv") for sign in _SIGNS]
)
_CONVOLUTIONS = [f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)]
# With a parameter as one of their arguments they are a layer.
LINEAR_MAPS = _everywhere(
    ["linear", "addmm", "baddbmm", "bmm", "matmul", "__matmul__", "__rmatmul__", "mm", *_CONVOLUTIONS]
)
POOLINGS = _everywhere(
    [f"{kind}_pool{n}d" for kind in ("avg", "max", "lp", "adaptive_avg", "adaptive_max") for n in (1, 2, 3)]
    + ["mean", "sum", "amax", "max"]
)
# What is made of parts that matter one by one, and how to run it so that they are seen.
OPENED = {F.multi_head_attention_forward: _opened(F.multi_head_attention_forward)}
