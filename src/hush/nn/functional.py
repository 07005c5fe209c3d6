"""The activations as functions, with exact zeros; the first five with one-kernel backwards that keep only the output.

    shifted_relu(x)    = max(x − τ, 0)
    soft_threshold(x)  = sign(x) max(|x| − τ, 0)
    crelu(x)           = min(max(x − τ, 0), m)
    cst(x)             = sign(x) min(max(|x| − τ, 0), m)
    fatrelu(x)         = x for x > τ, else 0
    thresholded_gelu(x) = GELU(x) where |GELU(x)| > τ, else 0
    thresholded_silu(x) = SiLU(x) where |SiLU(x)| > τ, else 0

For the first five one rule gives every derivative: 1 where the output is neither 0 nor ±m, and 0 elsewhere, *at* the
kinks too. So the output is all that the backward needs, and the next layer keeps it anyway. `torch.clamp` would pass
the gradient at its bounds and would keep its input besides.

The same with thresholds relative to a layer's own size, `relative_relu` and the others, come from
`hush.nn.relative_functions`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own custom)
from torch.overrides import handle_torch_function, has_torch_function_unary

from hush.nn.relative_functions import relative_crelu, relative_cst, relative_relu, relative_soft_threshold

__all__ = [
    "crelu",
    "cst",
    "fatrelu",
    "relative_crelu",
    "relative_cst",
    "relative_relu",
    "relative_soft_threshold",
    "shifted_relu",
    "soft_threshold",
    "thresholded_gelu",
    "thresholded_silu",
]

_between = torch.ops.aten.hardtanh_backward.default  # grad where low < y < high, else 0
_nonzero = torch.ops.aten.softshrink_backward.default  # grad where |y| > λ, else 0
_positive = torch.ops.aten.threshold_backward.default  # grad where y > λ, else 0


def shifted_relu(x: Tensor, threshold: float) -> Tensor:
    """ReLU_τ(x) = max(x − τ, 0)."""
    if has_torch_function_unary(x):
        return _handed_over(shifted_relu, x, threshold)
    # relu keeps its result already, and its derivative at 0 is 0. Adding 0.0 − τ turns −0.0 into +0.0 when τ = 0.
    return torch.relu(torch.add(_float(x), 0.0 - _in_dtype(threshold, x.dtype)))


def soft_threshold(x: Tensor, threshold: float) -> Tensor:
    """ST_τ(x) = sign(x) max(|x| − τ, 0)."""
    if has_torch_function_unary(x):
        return _handed_over(soft_threshold, x, threshold)
    return _apply(_SoftThreshold, x, threshold, math.inf)


def crelu(x: Tensor, threshold: float, clip: float) -> Tensor:
    """CReLU_{τ,m}(x) = min(max(x − τ, 0), m)."""
    if has_torch_function_unary(x):
        return _handed_over(crelu, x, threshold, clip)
    if clip == math.inf:
        return shifted_relu(x, threshold)
    return _apply(_CReLU, x, threshold, clip)


def cst(x: Tensor, threshold: float, clip: float) -> Tensor:
    """CST_{τ,m}(x) = sign(x) min(max(|x| − τ, 0), m)."""
    if has_torch_function_unary(x):
        return _handed_over(cst, x, threshold, clip)
    return _apply(_SoftThreshold, x, threshold, clip)


def fatrelu(x: Tensor, threshold: float) -> Tensor:
    """FATReLU_τ(x) = x for x > τ, else 0; it jumps at τ."""
    if has_torch_function_unary(x):
        return _handed_over(fatrelu, x, threshold)
    if threshold != threshold:  # not loaded yet; a comparison with NaN would let everything pass
        return x * math.nan
    return _apply(_FATReLU, x, threshold, math.inf)


def thresholded_gelu(x: Tensor, threshold: float, approximate: str = "none") -> Tensor:
    """GELU(x) where |GELU(x)| > τ, else 0; approximate as torch's "none" and "tanh", or "sigmoid" for x σ(1.702 x)."""
    if has_torch_function_unary(x):
        return _handed_over(thresholded_gelu, x, threshold, approximate)
    return _keep_large(gelu(_float(x), approximate), threshold)


def thresholded_silu(x: Tensor, threshold: float) -> Tensor:
    """SiLU(x) where |SiLU(x)| > τ, else 0."""
    if has_torch_function_unary(x):
        return _handed_over(thresholded_silu, x, threshold)
    return _keep_large(F.silu(_float(x)), threshold)


def _keep_large(y: Tensor, threshold: float) -> Tensor:
    if threshold != threshold:  # not loaded yet; a comparison with NaN would let everything pass
        return y * math.nan
    # The derivative of hardshrink is 1 where its output is not 0, and 0 elsewhere, at ±τ too; a NaN passes.
    return F.hardshrink(y, _in_dtype(threshold, y.dtype))


def gelu(x: Tensor, approximate: str) -> Tensor:
    """torch's GELU, and beside its two forms the one of CLIP, "sigmoid"."""
    return x * torch.sigmoid(1.702 * x) if approximate == "sigmoid" else F.gelu(x, approximate=approximate)


def _handed_over(function: Callable[..., Tensor], x: Tensor, *parameters: float | str) -> Tensor:
    """To a tensor subclass or to who watches torch's functions, as torch's own functions do it."""
    result: Tensor = handle_torch_function(function, (x,), x, *parameters)
    return result


class _Activation(torch.autograd.Function):
    """What the three share: the output is kept, and vmap needs no thought because all is elementwise."""

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(output)
        ctx.clip = inputs[2]

    @classmethod
    def vmap(cls, info, in_dims, x, threshold, clip):  # type: ignore[no-untyped-def]
        return cls.apply(x, threshold, clip), in_dims[0]  # type: ignore[no-untyped-call]


class _CReLU(_Activation):
    @staticmethod
    def forward(x: Tensor, threshold: float, clip: float) -> Tensor:
        # 0           x ≤ τ
        # x − τ       τ < x < τ + m
        # m           x ≥ τ + m
        return torch.add(x, 0.0 - threshold).clamp_(0.0, clip)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (y,) = ctx.saved_tensors
        return _between(grad, y, 0.0, ctx.clip), None, None


class _SoftThreshold(_Activation):
    @staticmethod
    def forward(x: Tensor, threshold: float, clip: float) -> Tensor:
        # 0                     |x| ≤ τ
        # sign(x)(|x| − τ)      τ < |x| < τ + m
        # sign(x) m             |x| ≥ τ + m
        # x − clamp(x) is exactly +0.0 inside, where softshrink may leave −0.0; so is −0.0 + 0.0.
        y = x + 0.0 if threshold == 0.0 else torch.sub(x, torch.clamp(x, -threshold, threshold))
        return y if clip == math.inf else F.hardtanh_(y, -clip, clip)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (y,) = ctx.saved_tensors
        if ctx.clip != math.inf:
            grad = _between(grad, y, -ctx.clip, ctx.clip)
        if torch.compiler.is_compiling():
            # The one kernel knows no dynamic shapes; compiled, the two of this become one anyway.
            return grad.masked_fill(y == 0.0, 0.0), None, None
        return _nonzero(grad, y, 0.0), None, None


class _FATReLU(_Activation):
    @staticmethod
    def forward(x: Tensor, threshold: float, clip: float) -> Tensor:
        # 0     x ≤ τ
        # x     x > τ
        return torch.threshold(x, threshold, 0.0)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (y,) = ctx.saved_tensors
        return _positive(grad, y, 0.0), None, None


def _eager(function: type[_Activation]) -> type[torch.autograd.Function]:
    """`function` with its set-up folded into forward: `apply` then spends no time on inspect.signature."""
    forward_of = function.forward

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):  # type: ignore[no-untyped-def]
            output = forward_of(*arguments)
            ctx.save_for_backward(output)
            ctx.clip = arguments[2]
            return output

        backward = function.backward

    return Eager


_EAGER: dict[type[_Activation], type[torch.autograd.Function]] = {
    function: _eager(function) for function in (_CReLU, _SoftThreshold, _FATReLU)
}


def drops_gradient_at_zero(node: object) -> bool:
    """Whether an autograd node is one of these functions: its backward is 0 wherever its output is."""
    if isinstance(node, torch.autograd.graph.Node) and node.name() == "HardshrinkBackward0":
        # The thresholded forms end in it. With a λ below 0, which they never have, it would let all pass, zeros too.
        return float(node._saved_lambd) >= 0.0  # type: ignore[attr-defined]
    forward = getattr(type(node), "_forward_cls", None)
    return forward in _EAGER or forward in _EAGER.values()


def _apply(function: type[_Activation], x: Tensor, threshold: float, clip: float) -> Tensor:
    if x.dtype is not torch.float32:
        threshold, clip = _in_dtype(threshold, x.dtype), _in_dtype(clip, x.dtype)
    if torch.compiler.is_exporting():
        # A program for elsewhere gets torch's own operations with torch's own derivatives, which differ at the kinks
        # alone. Strict export would put a function with a backward of its own under no_grad, and drop its gradient.
        exported: Tensor = function.forward(_float(x), threshold, clip)
        return exported
    eager = not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())
    chosen = _EAGER[function] if eager else function
    out: Tensor = chosen.apply(_float(x), threshold, clip)
    return out


def _float(x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        raise ValueError(f"an activation needs a floating-point tensor, got {x.dtype}.")
    return x


def _in_dtype(value: float, dtype: torch.dtype) -> float:
    """`value` as the half-precision types hold it.

    Their kernels compute partly in float32, where bf16(m) < m may hold: the saturated units would then pass a gradient.
    Plain arithmetic, which torch.compile folds: v·c − (v·c − v) with c = 2^k + 1 rounds to 53 − k bits (Veltkamp).
    """
    if dtype not in (torch.bfloat16, torch.float16) or value == math.inf:
        return value
    if value > torch.finfo(dtype).max:
        return math.inf
    if value < torch.finfo(dtype).tiny:
        # Subnormal: a fixed grid, which adding and subtracting 1.5·2⁵² of its steps rounds to.
        anchor = 1.5 * 2.0**52 * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        return (value + anchor) - anchor
    scaled = value * (2.0 ** (53 - (8 if dtype is torch.bfloat16 else 11)) + 1.0)
    return scaled - (scaled - value)
