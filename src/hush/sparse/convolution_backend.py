"""What a backend offers that runs φ → Conv2d; without it torch does."""

from __future__ import annotations

from typing import Protocol, TypeGuard

from torch import Tensor

from .activation import Activation
from .backend import Backend
from .convolution_form import ConvolutionForm

__all__ = ["ConvolutionBackend", "ConvolutionProgram", "runs_convolutions"]


class ConvolutionProgram(Protocol):
    """φ → Conv2d for images and weights of certain shapes."""

    def look(self, x: Tensor) -> int:
        """How many units of φ(x) are active."""

    def list_active(self, x: Tensor) -> Tensor:
        """The active units of the x that was just looked at, as bytes."""

    def forward(self, saved: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor: ...

    def activations(self, saved: Tensor) -> Tensor:
        """φ(x), dense, from what was listed."""

    def backward(
        self, saved: Tensor, weight: Tensor, grad: Tensor, want_x: bool, want_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """∂L/∂x where φ(x) is active, 0 elsewhere, and ∂L/∂W."""


class ConvolutionBackend(Backend, Protocol):
    """One that runs convolutions too."""

    def takes_images(self, x: Tensor) -> bool:
        """Whether images that lie like this can be run."""

    def takes_convolution(self, weight: Tensor, bias: Tensor | None) -> bool:
        """Whether these parameters can be run, and trained."""

    def compile_convolution(
        self, form: ConvolutionForm, x: Tensor, weight: Tensor, phi: Activation
    ) -> ConvolutionProgram:
        """For images and weights of these shapes."""


def runs_convolutions(backend: Backend | None) -> TypeGuard[ConvolutionBackend]:
    # Not isinstance, which takes 20 µs to look through a protocol, at every call of every layer.
    return hasattr(backend, "compile_convolution")
