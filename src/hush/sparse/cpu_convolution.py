"""φ → Conv2d on the native kernels: float32 images that lie channels-last."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _native
from .activation import Activation
from .convolution_form import ConvolutionForm
from .kernel_counter import count_call

__all__ = ["CpuConvolution"]

_CPU = torch.device("cpu")


class CpuConvolution:
    """The native convolution for images and weights of certain shapes."""

    def __init__(self, form: ConvolutionForm, x: Tensor, weight: Tensor, phi: Activation) -> None:
        images, channels, height, width = x.shape
        outputs, _, taps_y, taps_x = weight.shape
        self._in_shape = (images, channels, height, width)
        self._out_shape = (images, outputs, *form.out_size(x, weight))
        sizes = [images, height, width, channels, outputs, taps_y, taps_x, *form.stride, *form.padding]
        self._native = _native.Convolution(sizes, form.circular, int(phi.kind), phi.threshold, phi.clip)

    def look(self, x: Tensor) -> int:
        return self._native.count(x.data_ptr(), torch.get_num_threads())

    def list_active(self, x: Tensor) -> Tensor:
        count_call()
        return torch.from_numpy(self._native.list_active(x.data_ptr(), torch.get_num_threads()))

    def forward(self, saved: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out = _empty(self._out_shape)
        at = 0 if bias is None else bias.data_ptr()
        self._native.forward(
            saved, weight.data_ptr(), list(weight.stride()), at, out.data_ptr(), torch.get_num_threads()
        )
        return out

    def activations(self, saved: Tensor) -> Tensor:
        out = _empty(self._in_shape).zero_()
        self._native.activations(saved, out.data_ptr())
        return out

    def backward(
        self, saved: Tensor, weight: Tensor, grad: Tensor, want_x: bool, want_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        grad = grad.detach().resolve_neg().contiguous(memory_format=torch.channels_last)
        of_x = _empty(self._in_shape) if want_x else None
        of_weight = torch.empty_like(weight.detach()) if want_weight else None
        self._native.backward(
            saved, weight.data_ptr(), list(weight.stride()), grad.data_ptr(),
            0 if of_x is None else of_x.data_ptr(), 0 if of_weight is None else of_weight.data_ptr(),
            list((weight if of_weight is None else of_weight).stride()), torch.get_num_threads(),
        )  # fmt: skip
        return of_x, of_weight


def _empty(shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=_CPU, memory_format=torch.channels_last)
