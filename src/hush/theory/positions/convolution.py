"""Random matrices over positions: a Dense layer at each position, and convolutions.

A convolution with weights N(0, σ_w²/fan-in), fan-in = taps × channels, draws every tap δ by itself, so

    K′[t, t′] = σ_w²/k Σ_δ K[st + δ, st′ + δ] + σ_b²,        G[st + δ, st′ + δ] += σ_w²/k G′[t, t′]

for k taps and stride s; what lies in the zero padding counts as 0. The bias is shared by all positions. Groups change
nothing, as fan-in counts the channels of a group.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hush.theory._arrays import Array
from hush.theory._checks import check_sigmas
from hush.theory.positions.field import Field, Indices
from hush.theory.positions.step import GainNoise, Preactivation

__all__ = ["Convolution", "Dense", "Window"]

Sizes = int | tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """Which input positions an output position reads: kernel, stride, padding and dilation as in torch."""

    kernel: Sizes
    stride: Sizes = 1
    padding: Sizes = 0
    dilation: Sizes = 1

    def __post_init__(self) -> None:
        for name, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            value = getattr(self, name)
            for size in value if isinstance(value, tuple) else (value,):
                if size != int(size) or size < least:
                    raise ValueError(f"{name} must be a whole number of at least {least}, got {value}.")

    def along(self, value: Sizes, dimensions: int) -> tuple[int, ...]:
        if isinstance(value, int):
            return (value,) * dimensions
        if len(value) != dimensions:
            raise ValueError(f"{value} has {len(value)} sizes, but the field has {dimensions} dimensions.")
        return value

    def taps(self, shape: tuple[int, ...]) -> int:
        return math.prod(self.along(self.kernel, len(shape)))

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        n = len(shape)
        sizes = tuple(
            (size + 2 * p - d * (k - 1) - 1) // s + 1
            for size, k, s, p, d in zip(
                shape,
                self.along(self.kernel, n),
                self.along(self.stride, n),
                self.along(self.padding, n),
                self.along(self.dilation, n),
                strict=True,
            )
        )
        if min(sizes) < 1:
            raise ValueError(f"a kernel of {self.kernel} at padding {self.padding} does not fit into {shape}.")
        return sizes

    def sources(self, shape: tuple[int, ...], circular: bool) -> Iterator[tuple[Indices, NDArray[np.bool_]]]:
        """For each tap: the flat input position that each output position reads, and whether it lies inside."""
        n = len(shape)
        kernel, stride = self.along(self.kernel, n), self.along(self.stride, n)
        padding, dilation = self.along(self.padding, n), self.along(self.dilation, n)
        grids = np.meshgrid(*(np.arange(size) for size in self.output_shape(shape)), indexing="ij")
        for tap in product(*(range(k) for k in kernel)):
            places, inside = [], np.ones(grids[0].shape, dtype=bool)
            for grid, size, s, p, d, t in zip(grids, shape, stride, padding, dilation, tap, strict=True):
                place = s * grid + t * d - p
                inside &= circular | ((place >= 0) & (place < size))
                places.append(place % size)
            yield np.ravel_multi_index(tuple(places), shape).ravel(), inside.ravel()


class _Linear:
    """What every random matrix shares: it adds no pre-activation, and its noise is that of what it reads."""

    mixes_channels: ClassVar[bool] = True

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        return ()

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        """2/(N T_g): |Wᵀδ|²/|δ|² over N channels and T_g independent positions."""
        return GainNoise(2.0 / (width * gradient.effective_positions()))


def biased(field: Field, kernel: Array, sigma_b: float, width: int | None, shape: tuple[int, ...]) -> Field:
    """The Gaussian field behind a random matrix; a bias dilutes the noise that the matrix carries on."""
    result = field.with_kernel(kernel + sigma_b**2, shape=shape)
    share = 1.0 - sigma_b**2 / result.variance if result.variance > 0.0 else 1.0
    return result.with_kernel(result.kernel, noise=share**2 * field.sampling(width))


@dataclass(frozen=True)
class Dense(_Linear):
    """x ← W x + b at each position, the same W: K′ = σ_w² K + σ_b².

    Arguments:
        sigma_w, sigma_b: weights are N(0, σ_w²/fan-in), biases N(0, σ_b²).
    """

    sigma_w: float
    sigma_b: float = 0.0

    def __post_init__(self) -> None:
        check_sigmas(self.sigma_w, self.sigma_b)

    def forward(self, field: Field, width: int | None = None) -> Field:
        return biased(field, self.sigma_w**2 * field.kernel, self.sigma_b, width, field.shape)

    def backward(self, gradient: Field, field: Field) -> Field:
        return gradient.with_kernel(self.sigma_w**2 * gradient.kernel)


@dataclass(frozen=True)
class Convolution(_Linear):
    """A convolution over the positions of a field; see the module's docstring.

    Arguments:
        sigma_w, sigma_b: weights are N(0, σ_w²/fan-in), biases N(0, σ_b²).
        kernel, stride, padding, dilation: as in torch, one number or one for each dimension.
        mode: what lies in the padding, "zeros" or "circular".

    A stationary field is taken for circular padding that keeps the map's size up to the stride; zero padding makes
    borders and needs a full field.
    """

    sigma_w: float
    sigma_b: float = 0.0
    kernel: Sizes = 3
    stride: Sizes = 1
    padding: Sizes = 1
    dilation: Sizes = 1
    mode: Literal["zeros", "circular"] = "zeros"

    def __post_init__(self) -> None:
        check_sigmas(self.sigma_w, self.sigma_b)
        if self.mode not in ("zeros", "circular"):
            raise ValueError(f"mode must be 'zeros' or 'circular', got {self.mode!r}.")
        _ = self.window

    @property
    def window(self) -> Window:
        return Window(self.kernel, self.stride, self.padding, self.dilation)

    def forward(self, field: Field, width: int | None = None) -> Field:
        shape = self.window.output_shape(field.shape)
        if field.stationary:
            strided = _strided(self.window, field.shape, self.mode)
            return biased(field, self.sigma_w**2 * field.kernel[:, :, strided], self.sigma_b, width, shape)
        size = math.prod(shape)
        kernel = np.zeros((field.inputs, field.inputs, size, size))
        for place, inside in self.window.sources(field.shape, self.mode == "circular"):
            kernel += field.kernel[:, :, place[:, None], place] * (inside[:, None] & inside)
        kernel *= self.sigma_w**2 / self.window.taps(field.shape)
        return biased(field, kernel, self.sigma_b, width, shape)

    def backward(self, gradient: Field, field: Field) -> Field:
        size = field.positions
        if gradient.stationary:
            # On average over the input positions: only displacements that are multiples of the stride meet.
            row = np.zeros((1, 1, size))
            strided = _strided(self.window, field.shape, self.mode)
            row[:, :, strided] = self.sigma_w**2 * gradient.positions / size * gradient.kernel
            return gradient.with_kernel(row, shape=field.shape)
        kernel = np.zeros((1, 1, size, size))
        for place, inside in self.window.sources(field.shape, self.mode == "circular"):
            # Within one tap no two outputs read the same position, unless the map is smaller than its padding.
            at = place[inside]
            np.add.at(kernel[0, 0], (at[:, None], at), gradient.kernel[0, 0][np.ix_(inside, inside)])
        kernel *= self.sigma_w**2 / self.window.taps(field.shape)
        return gradient.with_kernel(kernel, shape=field.shape)


def _strided(window: Window, shape: tuple[int, ...], mode: str) -> Indices:
    """The input displacement of each output displacement, on tori."""
    after, stride = window.output_shape(shape), window.along(window.stride, len(shape))
    if mode != "circular":
        raise ValueError(
            "a stationary field has no borders for zero padding to act on; take mode='circular', or field.full()."
        )
    if tuple(a * s for a, s in zip(after, stride, strict=True)) != shape:
        raise ValueError(f"a stationary field of {shape} must keep its size up to the stride {stride}, got {after}.")
    grids = np.meshgrid(*(s * np.arange(a) for a, s in zip(after, stride, strict=True)), indexing="ij")
    return np.ravel_multi_index(tuple(grids), shape).ravel()
