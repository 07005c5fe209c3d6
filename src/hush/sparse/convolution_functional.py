"""φ → Conv2d as a plain function of tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from .activation import Activation
from .conditions import backend_of
from .convolution_backend import runs_convolutions
from .convolution_form import form_from
from .convolution_gradients import Limits
from .convolution_stretch import convolve_now, takes

__all__ = ["act_conv2d"]


def act_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: Activation,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] | str = 0,
    padding_mode: str = "zeros",
) -> Tensor:
    """conv(φ(x)) + b over images (batch, channels, height, width): exact, with exact gradients.

    float32 images that lie channels-last on the CPU run on the sparse kernels, whatever their density, and only the
    compact φ(x) is kept for the backward. Everything else runs on torch's own operations.

    Arguments:
        weight: (out, in, height, width), as nn.Conv2d has it; one group, no dilation.
        padding: "same" and "valid" as in nn.Conv2d.
        padding_mode: "zeros" or "circular".

    Raises:
        ValueError: if an argument is out of range, or shapes, dtypes or devices do not go together.
    """
    _check(x, weight, bias)
    if activation.relative:
        raise ValueError("The activation is relative to a sample's own size, which convolutions do not take.")
    form = form_from(stride, padding, padding_mode, tuple(weight.shape[2:]))
    if min(form.out_size(x, weight)) < 1:
        raise ValueError(
            f"The kernel is {tuple(weight.shape[2:])} and the image {tuple(x.shape[2:])}; with padding {padding!r} "
            "the image must be at least as large."
        )
    top, left, bottom, right = form.padding
    if form.circular and (max(top, bottom) > x.shape[2] or max(left, right) > x.shape[3]):
        raise ValueError(
            f"Circular padding of {padding!r} wraps around an image of {tuple(x.shape[2:])} more than once."
        )
    backend = None if torch.compiler.is_compiling() else backend_of(x)
    if runs_convolutions(backend) and takes(backend, form, x, weight, bias):
        program = backend.compile_convolution(form, x, weight, activation)
        density = program.look(x) / x.numel()
        out = convolve_now(program, form, activation, x, weight, bias, density, Limits(1.0, 1.0, 1.0, 1.0))
        assert out is not None
        return out
    return form.dense(activation(x), weight, bias)


def _check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if x.dim() != 4:
        raise ValueError(f"The input has shape {tuple(x.shape)}; it must be (batch, channels, height, width).")
    if weight.dim() != 4 or weight.shape[1] != x.shape[1]:
        raise ValueError(
            f"The weight has shape {tuple(weight.shape)}; with {x.shape[1]} channels it must be "
            f"(out, {x.shape[1]}, height, width)."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"The bias has shape {tuple(bias.shape)}; it must be ({weight.shape[0]},).")
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and (p.dtype != x.dtype or p.device != x.device):
            raise ValueError(
                f"The {name} is {p.dtype} on {p.device}, but the input is {x.dtype} on {x.device}; they must agree."
            )
