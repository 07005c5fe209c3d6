"""torch's functions by what they do to a stream of activations; `hush.nn.flow` asks."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

__all__ = [
    "ATTENTIONS",
    "ELEMENTWISE_ACTIVATIONS",
    "FACTORIES",
    "NORMALISATIONS",
    "PRODUCTS",
    "REARRANGEMENTS",
    "TABLES",
]


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
