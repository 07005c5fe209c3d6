"""From a call of a torch function, with populations in the place of tensors, to the rule for it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from hush.diagnose.walk import rules_mixing as mixing
from hush.diagnose.walk import rules_norms as norms
from hush.diagnose.walk.context import Context, UnruledError
from hush.diagnose.walk.functions import COPIES, ELEMENTWISE, MATRIX_PRODUCTS, MOVES, named
from hush.diagnose.walk.population import Population
from hush.diagnose.walk.rules_elementwise import Elementwise, elementwise
from hush.diagnose.walk.rules_layers import convolution, linear, transposed_convolution
from hush.diagnose.walk.rules_rearranging import concatenated, moved, rearranged

__all__ = ["LAYERS", "apply_rule"]

_LINEAR = named("linear")
_CONVOLUTIONS = named("conv1d", "conv2d", "conv3d")
_TRANSPOSED = named("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_ADDMM = named("addmm", "baddbmm")
# What applies a weight; a matrix product does when one of its factors is fixed.
LAYERS = _LINEAR | _CONVOLUTIONS | _TRANSPOSED | _ADDMM | MATRIX_PRODUCTS


class _Given:
    """The arguments of a call, by place or by name."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs

    def __call__(self, place: int, name: str, default: Any = None) -> Any:
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


def apply_rule(context: Context, func: Any, args: Any, kwargs: Any, output: Any) -> Population | list[Population]:
    """`args` and `kwargs` hold populations where the model had tensors that depend on its input; `output` is real.

    Raises:
        UnruledError: where no rule speaks of this.
    """

    get = _Given(args, kwargs)

    if func in ELEMENTWISE:
        return elementwise(context, Elementwise(func, args, kwargs), output)
    if func in COPIES:
        return _the(get(0, "input"))
    if func in MOVES:
        return rearranged(context, _the(get(0, "input")), func, args, kwargs)
    for group, rule in _RULES:
        if func in group:
            found: Population | list[Population] = rule(context, get, output)
            return found
    raise UnruledError("there is no rule for it")


def _the(value: Any) -> Population:
    if not isinstance(value, Population):
        raise UnruledError("it does not start from a value that could be followed")
    return value


def _fixed(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise UnruledError("its weights depend on the input")
    return value


def _linear(context: Context, get: _Given, output: Tensor) -> Population:
    return linear(context, _the(get(0, "input")), _fixed(get(1, "weight")), get(2, "bias"), output)


def _addmm(context: Context, get: _Given, output: Tensor) -> Population:
    weight = _fixed(get(2, "mat2"))
    if weight.dim() != 2:
        raise UnruledError("its weights have a batch")
    return linear(context, _the(get(1, "mat1")), weight.T, _fixed(get(0, "input")), output)


def _convolution(context: Context, get: _Given, output: Tensor) -> Population:
    weight = _fixed(get(1, "weight"))
    dims = weight.dim() - 2
    stride, dilation = (_each(get(n, name, 1), dims) for n, name in ((3, "stride"), (5, "dilation")))
    padding = get(4, "padding", 0)
    if padding == "same":
        padding = tuple((dilation[n] * (weight.shape[2 + n] - 1)) // 2 for n in range(dims))
    padding = _each(0 if padding == "valid" else padding, dims)
    x = _the(get(0, "input"))
    return convolution(context, x, weight, get(2, "bias"), output, stride, padding, dilation)


def _transposed(context: Context, get: _Given, output: Tensor) -> Population:
    weight = _fixed(get(1, "weight"))
    stride = _each(get(3, "stride", 1), weight.dim() - 2)
    return transposed_convolution(context, _the(get(0, "input")), weight, get(2, "bias"), output, stride)


def _matrix_product(context: Context, get: _Given, output: Tensor) -> Population:
    left, right = get(0, "input"), get(1, "other", get(1, "mat2"))
    if isinstance(left, Population) and isinstance(right, Tensor) and right.dim() == 2:
        return linear(context, left, right.T, None, output)
    if not (isinstance(left, Population) and isinstance(right, Population)):
        raise UnruledError("a fixed matrix in front, or one with a batch")
    if left.mixing is not None:
        return mixing.mixed(context, left, right, output)
    if left.sites.varies(-1)[0] and right.sites.varies(-2)[0]:
        return mixing.logits(context, left, right, left.sites.codes.shape[-1], output)
    raise UnruledError("a product of two values that is no attention")


def _attention(context: Context, get: _Given, output: Tensor) -> Population:
    query, key, value = (_the(get(n, name)) for n, name in ((0, "query"), (1, "key"), (2, "value")))
    mask, causal = get(3, "attn_mask"), bool(get(5, "is_causal", False))
    return mixing.attention(
        context, query, key, value, output, scale=get(6, "scale"), causal=causal, visible=_visible(mask)
    )


def _visible(mask: Any) -> float:
    """The share of pairs of positions that a mask lets through."""
    if not isinstance(mask, Tensor):
        return 1.0
    return float((mask if mask.dtype == torch.bool else mask > -1e4).double().mean())


def _multi_head(context: Context, get: _Given, output: Any) -> list[Population]:
    """F.multi_head_attention_forward: three products, the mixing, and one more product."""
    query, key, value = (_the(get(n, name)) for n, name in ((0, "query"), (1, "key"), (2, "value")))
    heads, weight, bias = get(4, "num_heads"), get(5, "in_proj_weight"), get(6, "in_proj_bias")
    named_weights = ((18, "q_proj_weight"), (19, "k_proj_weight"), (20, "v_proj_weight"))
    weights = weight.chunk(3) if weight is not None else tuple(_fixed(get(n, name)) for n, name in named_weights)
    result = output[0] if isinstance(output, tuple) else output
    shape = result.shape
    biases = bias.chunk(3) if bias is not None else (None, None, None)
    # (positions, batch, units), as torch has them there.
    parts = [
        linear(context, x, w, b, torch.empty((*x.sites.codes.shape[:-1], w.shape[0]), device="meta"))
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    ]
    size = shape[-1] // heads
    split = [moved(context, part, part.sites.codes.unflatten(-1, (heads, size)).permute(1, 2, 0, 3)) for part in parts]
    mask = get(16, "attn_mask")
    shaped = torch.empty(split[0].sites.codes.shape, device="meta")
    mixed = mixing.attention(
        context,
        split[0],
        split[1],
        split[2],
        shaped,
        scale=None,
        causal=bool(get(24, "is_causal", False)),
        visible=_visible(mask),
    )
    back = moved(context, mixed, mixed.sites.codes.permute(2, 0, 1, 3).flatten(-2))
    closed = linear(context, back, _fixed(get(11, "out_proj_weight")), get(12, "out_proj_bias"), result)
    return [closed]


def _softmax(context: Context, get: _Given, output: Tensor) -> Population:
    x = _the(get(0, "input"))
    if int(get(1, "dim", -1)) % output.dim() != output.dim() - 1:
        raise UnruledError("a softmax over another axis than the last")
    return mixing.softmax(context, x, output)


def _layer_norm(context: Context, get: _Given, output: Tensor) -> Population:
    if len(get(1, "normalized_shape")) != 1:
        raise UnruledError("a norm over several axes")
    x = _the(get(0, "input"))
    return norms.layer_norm(context, x, get(2, "weight"), get(3, "bias"), float(get(4, "eps", 1e-5)))


def _rms_norm(context: Context, get: _Given, output: Tensor) -> Population:
    if len(get(1, "normalized_shape")) != 1:
        raise UnruledError("a norm over several axes")
    return norms.rms_norm(context, _the(get(0, "input")), get(2, "weight"), get(3, "eps"))


def _group_norm(context: Context, get: _Given, output: Tensor) -> Population:
    x = _the(get(0, "input"))
    return norms.group_norm(
        context, x, int(get(1, "num_groups")), get(2, "weight"), get(3, "bias"), get(4, "eps", 1e-5)
    )


def _batch_norm(context: Context, get: _Given, output: Tensor) -> Population:
    x = _the(get(0, "input"))
    mean, variance, weight, bias = get(1, "running_mean"), get(2, "running_var"), get(3, "weight"), get(4, "bias")
    eps = float(get(7, "eps", 1e-5))
    if bool(get(5, "training", False)):
        return norms.batch_norm(context, x, weight, bias, eps)
    # With the running statistics it is a fixed affine function of every unit.
    view = [1, -1] + [1] * (output.dim() - 2)
    factor = (variance + eps).rsqrt() * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * factor
    scaled = elementwise(context, Elementwise(torch.mul, (x, factor.detach().view(view)), {}), output)
    return elementwise(context, Elementwise(torch.add, (scaled, shift.detach().view(view)), {}), output)


def _mean(context: Context, get: _Given, output: Tensor, total: bool = False) -> Population:
    axes = get(1, "dim", get(1, "axis"))
    if axes is None:
        raise UnruledError("it takes everything together, the batch too")
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    return mixing.averaged(context, _the(get(0, "input")), axes, output, total)


def _sum(context: Context, get: _Given, output: Tensor) -> Population:
    return _mean(context, get, output, total=True)


def _pool(context: Context, get: _Given, output: Tensor) -> Population:
    dims = output.dim() - 2
    return mixing.pooled(context, _the(get(0, "input")), _size(_each(get(1, "kernel_size"), dims)), output)


def _adaptive_pool(context: Context, get: _Given, output: Tensor) -> Population:
    x = _the(get(0, "input"))
    before, after = x.sites.codes.shape[2:], output.shape[2:]
    if _size(after) == 1:
        return mixing.averaged(context, x, tuple(range(2, output.dim())), output, False)
    return mixing.pooled(context, x, max(1, _size(before) // _size(after)), output)


def _max_pool(context: Context, get: _Given, output: Any) -> Population:
    result = output[0] if isinstance(output, tuple) else output
    dims = result.dim() - 2
    return mixing.max_pool(context, _the(get(0, "input")), _size(_each(get(1, "kernel_size"), dims)), result)


def _upsample(context: Context, get: _Given, output: Tensor) -> Population:
    if get(3, "mode", "nearest") != "nearest":
        raise UnruledError("only repeated positions are ruled, not interpolated ones")
    return mixing.upsampled(context, _the(get(0, "input")), output)


def _concatenate(context: Context, get: _Given, output: Tensor) -> Population:
    return concatenated(context, get(0, "tensors"), int(get(1, "dim", get(1, "axis", 0)) or 0))


def _pad(context: Context, get: _Given, output: Tensor) -> Population:
    value = get(3, "value") or 0.0
    if get(2, "mode", "constant") not in ("constant", "circular") or value != 0.0:
        raise UnruledError("padding with other values than zeros or its own")
    return mixing.padded(context, _the(get(0, "input")), output, zeros=get(2, "mode", "constant") == "constant")


def _size(sizes: Sequence[int]) -> int:
    return int(math.prod(int(n) for n in sizes))


def _each(value: Any, dims: int) -> tuple[int, ...]:
    return (int(value),) * dims if isinstance(value, int) else tuple(int(v) for v in tree_leaves(value)) or (1,) * dims


_RULES: tuple[tuple[frozenset[Any], Callable[[Context, _Given, Any], Any]], ...] = (
    (_LINEAR, _linear),
    (_CONVOLUTIONS, _convolution),
    (_TRANSPOSED, _transposed),
    (named("addmm"), _addmm),
    (MATRIX_PRODUCTS, _matrix_product),
    (named("scaled_dot_product_attention"), _attention),
    (named("multi_head_attention_forward"), _multi_head),
    (named("softmax", "_softmax"), _softmax),
    (named("layer_norm"), _layer_norm),
    (named("rms_norm"), _rms_norm),
    (named("group_norm"), _group_norm),
    (named("batch_norm"), _batch_norm),
    (named("mean"), _mean),
    (named("sum"), _sum),
    (named("avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool),
    (named("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), _adaptive_pool),
    (named("max_pool1d", "max_pool2d", "max_pool3d", "_max_pool1d", "_max_pool2d", "_max_pool3d"), _max_pool),
    (named("interpolate"), _upsample),
    (named("cat", "concat", "concatenate"), _concatenate),
    (named("pad"), _pad),
)
