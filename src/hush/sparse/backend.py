"""The seam between hush and whoever computes: one backend for each kind of device.

A backend compiles a stretch of layers, W_L φ_L(… W₁ φ₁(h) + b₁ …) + b_L, into a program that runs it. The processor's
is `hush.sparse.cpu`; a GPU's would be registered here and nobody else would notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeGuard

from torch import Tensor

from .activation import Activation
from .residual_block import ResidualBlock
from .step_plan import StepPlan

__all__ = [
    "Backend",
    "Forward",
    "Program",
    "RelativeBackend",
    "RelativeProgram",
    "ResidualBackend",
    "backend_for",
    "register_backend",
    "runs_residual_chains",
    "takes_activations",
]


class Forward(NamedTuple):
    """What a forward that is to be trained through leaves behind."""

    out: Tensor
    saved: Tensor  # compact activations, as bytes; their number depends on how many units were active
    active: int  # units that were not zero, over all layers and samples
    program: Program  # for the backward: it holds the weights as this forward saw them


class Program(Protocol):
    """A stretch over the memory of certain tensors, which whoever keeps the program must keep too."""

    row_gradients: bool  # whether gradients of weights are written row by row, or input-major
    takes_updates: bool  # whether a plan may update weights, which lie as the gradients would

    def infer(self, h: Tensor) -> tuple[Tensor, int]:
        """The output, and how many units were active."""

    def forward(self, h: Tensor) -> Forward: ...

    def first_activations(self, saved: Tensor, batch: int) -> Tensor:
        """φ₁(h), dense, from what was saved; of a residual chain x itself, whose norm and φ come after it."""

    def mean_inputs(self, saved: Tensor, batch: int) -> list[Tensor]:
        """The mean over the batch of each layer's φ(h), from what was saved; a backend that centres no gradients may do
        without it."""

    def backward(self, grad: Tensor, saved: Tensor, want_h: bool, plan: StepPlan) -> Tensor | None:
        """∂L/∂h where it is wanted; each parameter's gradient goes where the plan says."""


class Backend(Protocol):
    name: str

    def takes(self, h: Tensor) -> bool:
        """Whether an input of this kind (dtype, strides) can be run."""

    def takes_parameters(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None], training: bool) -> bool:
        """Whether these parameters can be run, and trained."""

    def compile(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor | None], phis: Sequence[Activation]
    ) -> Program: ...


class RelativeProgram(Program, Protocol):
    """One whose first activation is relative."""

    def first_inputs(self, saved: Tensor, batch: int) -> Tensor:
        """h, from what was saved."""


class RelativeBackend(Backend, Protocol):
    """One that runs activations relative to a sample's own size too; without it torch does."""

    def takes_relative(self, weights: Sequence[Tensor]) -> bool:
        """Whether layers with these weights can be run behind such activations."""


def takes_activations(backend: Backend, phis: Sequence[Activation], weights: Sequence[Tensor]) -> bool:
    """Whether the backend runs these activations in front of these weights."""
    if not any(phi.relative for phi in phis):
        return True
    return hasattr(backend, "takes_relative") and backend.takes_relative(weights)


class ResidualBackend(Backend, Protocol):
    """One that runs residual chains too; without it torch does."""

    def takes_blocks(self, blocks: Sequence[ResidualBlock], training: bool) -> bool:
        """Whether these blocks can be run, and trained."""

    def compile_residual(self, blocks: Sequence[ResidualBlock]) -> Program: ...


def runs_residual_chains(backend: Backend | None) -> TypeGuard[ResidualBackend]:
    # Not isinstance, which takes 20 µs to look through a protocol, at every call.
    return hasattr(backend, "compile_residual")


_backends: dict[str, Backend] = {}


def register_backend(device_type: str, backend: Backend | None) -> None:
    """Let `backend` run the tensors of a kind of device, such as "cuda"; None takes it away again."""
    if backend is None:
        _backends.pop(device_type, None)
    else:
        _backends[device_type] = backend


def backend_for(h: Tensor) -> Backend | None:
    return _backends.get(h.device.type)
