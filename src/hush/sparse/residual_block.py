"""One block of a residual chain, x ← x + β(W φ(n(x)) + b) or x ← x + β(W φ(W₁ n(x) + b₁) + b), as plain values and
tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .activation import Activation
from .step_plan import Part

__all__ = ["Norm", "ResidualBlock", "before_biases", "dense_residual", "parameters_of", "with_parameters"]

_BIASES = ("bias", "inner_bias")  # the backward does not read them again


class Norm(IntEnum):
    """n, over the last dimension; the numbers are the kernels'."""

    NONE = 0
    RMS = 1
    LAYER = 2


@dataclass(frozen=True)
class ResidualBlock:
    """x ← x + β(W φ(n(x)) + b); with an inner weight x ← x + β(W φ(W₁ n(x) + b₁) + b).

    Attributes:
        weight: W, square where there is no inner weight.
        bias: b, or None.
        phi: φ.
        norm, eps: n, and what it adds to the mean square or the variance.
        gain, shift: of the norm, by element; a shift needs a gain.
        scale: β, a number or a tensor of one.
        inner_weight, inner_bias: W₁ and b₁; a bias needs a weight.
    """

    weight: Tensor
    bias: Tensor | None
    phi: Activation
    norm: Norm = Norm.NONE
    eps: float = 0.0
    gain: Tensor | None = None
    shift: Tensor | None = None
    scale: float | Tensor = 1.0
    inner_weight: Tensor | None = None
    inner_bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The block with torch's own operations."""
        return x + self.scale * F.linear(self.activations(x), self.weight.to(x.dtype), self.bias)

    def activations(self, x: Tensor) -> Tensor:
        """What W reads."""
        read = self.normed(x)
        return self.phi(read if self.inner_weight is None else F.linear(read, self.inner_weight, self.inner_bias))

    def normed(self, x: Tensor) -> Tensor:
        """n(x)."""
        if self.norm is Norm.RMS:
            return F.rms_norm(x, x.shape[-1:], self.gain, self.eps)
        if self.norm is Norm.LAYER:
            return F.layer_norm(x, x.shape[-1:], self.gain, self.shift, self.eps)
        return x

    def tensors(self) -> Iterator[tuple[Part, Tensor]]:
        """Its parameters, the biases last."""
        scale = self.scale if isinstance(self.scale, Tensor) else None
        found: tuple[tuple[Part, Tensor | None], ...] = (
            ("weight", self.weight),
            ("gain", self.gain),
            ("shift", self.shift),
            ("scale", scale),
            ("inner_weight", self.inner_weight),
            ("inner_bias", self.inner_bias),
            ("bias", self.bias),
        )
        return ((part, tensor) for part, tensor in found if tensor is not None)


def dense_residual(x: Tensor, blocks: Sequence[ResidualBlock]) -> Tensor:
    """All blocks with torch's own operations."""
    for block in blocks:
        x = block(x)
    return x


def parameters_of(blocks: Sequence[ResidualBlock]) -> tuple[list[Tensor], list[tuple[int, Part]]]:
    """The tensors of all blocks, the biases behind all others, and the block and part of each."""
    found = [(layer, part, tensor) for layer, block in enumerate(blocks) for part, tensor in block.tensors()]
    found.sort(key=lambda entry: entry[1] in _BIASES)  # stable: nothing else changes its place
    return [tensor for _, _, tensor in found], [(layer, part) for layer, part, _ in found]


def before_biases(places: Sequence[tuple[int, Part]]) -> int:
    """How many parameters stand in front of the biases."""
    return sum(part not in _BIASES for _, part in places)


def with_parameters(
    blocks: Sequence[ResidualBlock], places: Sequence[tuple[int, Part]], parameters: Sequence[Tensor]
) -> list[ResidualBlock]:
    """The blocks with these tensors in place of their own."""
    given: list[dict[str, Tensor]] = [{} for _ in blocks]
    for (layer, part), tensor in zip(places, parameters, strict=True):
        given[layer][part] = tensor
    return [
        ResidualBlock(
            own["weight"],
            own.get("bias"),
            block.phi,
            block.norm,
            block.eps,
            own.get("gain"),
            own.get("shift"),
            own.get("scale", block.scale),
            own.get("inner_weight"),
            own.get("inner_bias"),
        )
        for block, own in zip(blocks, given, strict=True)
    ]
