"""What a convolution does besides its weights: strides and padding, and its products by torch's own operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

__all__ = ["ConvolutionForm", "form_from", "form_of"]


_MOST_NUMBERS = 1 << 32


@dataclass(frozen=True)
class ConvolutionForm:
    """Strides (y, x) and padding (top, left, bottom, right), of zeros or circular; one group, no dilation."""

    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    circular: bool = False

    def out_size(self, x: Tensor, weight: Tensor) -> tuple[int, int]:
        """Height and width of the output; not positive where the kernel is larger than the padded image."""
        top, left, bottom, right = self.padding
        height = x.shape[2] + top + bottom - weight.shape[2]
        width = x.shape[3] + left + right - weight.shape[3]
        return height // self.stride[0] + 1, width // self.stride[1] + 1

    def fits(self, x: Tensor, weight: Tensor) -> bool:
        """Whether torch would take these shapes, there is anything to compute, and it can be counted in 32 bits."""
        if x.dim() != 4 or weight.dim() != 4 or x.shape[1] != weight.shape[1] or not x.numel() or not weight.numel():
            return False
        top, left, bottom, right = self.padding
        if x.shape[0] * x.shape[1] * x.shape[2] * (x.shape[3] + left + right) >= _MOST_NUMBERS:
            return False
        wraps_once = max(top, bottom) <= x.shape[2] and max(left, right) <= x.shape[3]
        return min(self.out_size(x, weight)) > 0 and (wraps_once or not self.circular)

    @property
    def _as_torch_pads(self) -> bool:
        """Whether F.conv2d pads so by itself."""
        top, left, bottom, right = self.padding
        return not self.circular and (top, left) == (bottom, right)

    def _padded(self, x: Tensor) -> Tensor:
        top, left, bottom, right = self.padding
        return F.pad(x, (left, right, top, bottom), mode="circular" if self.circular else "constant")

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution."""
        if self._as_torch_pads:
            return F.conv2d(x, weight, bias, self.stride, self.padding[:2])
        return F.conv2d(self._padded(x), weight, bias, self.stride)

    def dense_input_gradient(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """∂L/∂x; of x only the shape matters."""
        if self._as_torch_pads:
            return self._backward(grad, x, weight, self.padding[:2], of_input=True)
        with torch.enable_grad():
            leaf = x.detach().new_zeros(()).expand(x.shape).requires_grad_()
            padded = self._padded(leaf)
        whole = self._backward(grad, padded.detach(), weight, (0, 0), of_input=True)
        (found,) = torch.autograd.grad(padded, leaf, whole)
        return found.contiguous(memory_format=torch.channels_last)

    def dense_weight_gradient(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """∂L/∂W; of the weight only the shape matters."""
        if self._as_torch_pads:
            return self._backward(grad, x, weight, self.padding[:2], of_input=False)
        return self._backward(grad, self._padded(x), weight, (0, 0), of_input=False)

    def _backward(self, grad: Tensor, x: Tensor, weight: Tensor, padding: tuple[int, ...], of_input: bool) -> Tensor:
        found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            grad, x, weight, None, self.stride, padding, (1, 1), False, (0, 0), 1, (of_input, not of_input, False)
        )
        return found[0 if of_input else 1]


def form_of(module: nn.Module) -> ConvolutionForm | str:
    """The form of an nn.Conv2d as it is now, or why the kernels do not have it, as a phrase behind its name."""
    groups, dilation, mode = module.groups, _pair(module.dilation), module.padding_mode
    if groups != 1:
        return f"has {groups} groups"
    if dilation != (1, 1):
        return f"has dilation {module.dilation}"
    if mode not in ("zeros", "circular"):
        return f"pads by {mode!r}"
    stride = _pair(module.stride)
    if stride is None or min(stride) < 1:
        return f"has stride {module.stride}"
    if mode == "circular":  # torch pads by this list, which it makes once, and not by `padding`
        left, right, top, bottom = module._reversed_padding_repeated_twice  # type: ignore[misc]
        padding: tuple[Any, ...] | None = (top, left, bottom, right)
    else:
        weight = module.weight
        padding = _padding(module.padding, weight.shape[-2:] if isinstance(weight, Tensor) else ())
    if padding is None or min(padding) < 0 or (module.padding == "same" and stride != (1, 1)):
        return f"has padding {module.padding!r}"
    return ConvolutionForm(stride, padding, mode == "circular")


def form_from(stride: Any, padding: Any, padding_mode: str, kernel: tuple[int, ...]) -> ConvolutionForm:
    """From the arguments that nn.Conv2d takes.

    Raises:
        ValueError: if one of them is out of range.
    """
    strides, pads = _pair(stride), _padding(padding, kernel)
    if strides is None or min(strides) < 1:
        raise ValueError(f"The stride is {stride!r}; it must be one or two whole numbers of at least 1.")
    if pads is None or min(pads) < 0:
        raise ValueError(f"The padding is {padding!r}; it must be one or two whole numbers, 'same' or 'valid'.")
    if padding == "same" and strides != (1, 1):
        raise ValueError(f"The padding is 'same', which goes with stride 1, and the stride is {stride!r}.")
    if padding_mode not in ("zeros", "circular"):
        raise ValueError(f"The padding mode is {padding_mode!r}; it must be 'zeros' or 'circular'.")
    return ConvolutionForm(strides, pads, padding_mode == "circular")


def _pair(value: Any) -> tuple[int, int] | None:
    if isinstance(value, int):
        return (value, value)
    if isinstance(value, (tuple, list)) and len(value) in (1, 2) and all(isinstance(v, int) for v in value):
        return (value[0], value[-1])
    return None


def _padding(value: Any, kernel: Any) -> tuple[int, int, int, int] | None:
    """(top, left, bottom, right), as torch understands it: what is odd in "same" goes to the end."""
    if value == "valid":
        return (0, 0, 0, 0)
    if value == "same" and len(kernel) == 2:
        down, across = kernel[0] - 1, kernel[1] - 1
        return (down // 2, across // 2, down - down // 2, across - across // 2)
    pair = _pair(value)
    return None if pair is None else (*pair, *pair)
