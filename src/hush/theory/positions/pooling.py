"""Pooling over positions.

The average is linear, y = P x, and exact: K′ = P K Pᵀ, G = Pᵀ G′ P. A maximum of dependent Gaussians has no closed
form; fields of the given covariance are drawn, pooled and averaged (a fixed seed; `MaxPooling.error` says how far
chance may reach), with every covariance inside and between windows as it is.
"""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, Literal

import numpy as np

from hush.theory._arrays import Array
from hush.theory.activations.protocol import Activation
from hush.theory.activations.relative import slope_in_wide_layer, value_in_wide_layer
from hush.theory.positions.convolution import Sizes, Window
from hush.theory.positions.drawn_field import covariance_of, draw_field, draws_for
from hush.theory.positions.elementwise import read_by
from hush.theory.positions.field import Field, Indices
from hush.theory.positions.step import GainNoise, Preactivation

__all__ = ["AveragePooling", "GlobalAverage", "MaxPooling"]


class _Mean:
    """What linear pooling shares: nothing random, so no noise of its own."""

    mixes_channels: ClassVar[bool] = False

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        return GainNoise(0.0)

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        return ()


@dataclass(frozen=True)
class AveragePooling(_Mean):
    """The mean over each window; padding counts as zeros, as torch's `count_include_pad` does. `stride` defaults to the
    kernel."""

    kernel: Sizes = 2
    stride: Sizes | None = None
    padding: Sizes = 0

    @property
    def window(self) -> Window:
        return Window(self.kernel, self.kernel if self.stride is None else self.stride, self.padding)

    def forward(self, field: Field, width: int | None = None) -> Field:
        shape, taps = self.window.output_shape(field.shape), self.window.taps(field.shape)
        if field.stationary:
            kernel = sum(field.kernel[:, :, index] for index in _meetings(self.window, field.shape)) / taps**2
            assert not isinstance(kernel, int | float)
            pooled = field.with_kernel(kernel, shape=shape, mean=field.mean, gaussian=field.gaussian)
            return _less_even(pooled, field, width)
        mixing = self._matrix(field.shape)
        kernel = mixing @ field.kernel @ mixing.T
        pooled = field.with_kernel(kernel, shape=shape, mean=field.mean @ mixing.T, gaussian=field.gaussian)
        return _less_even(pooled, field, width)

    def backward(self, gradient: Field, field: Field) -> Field:
        if gradient.stationary:
            row = np.zeros(field.positions)
            for index in _meetings(self.window, field.shape):
                np.add.at(row, index, gradient.kernel[0, 0])
            row *= gradient.positions / field.positions / self.window.taps(field.shape) ** 2
            return gradient.with_kernel(row[None, None], shape=field.shape)
        mixing = self._matrix(field.shape)
        return gradient.with_kernel(mixing.T @ gradient.kernel @ mixing, shape=field.shape)

    def _matrix(self, shape: tuple[int, ...]) -> Array:
        mixing = np.zeros((math.prod(self.window.output_shape(shape)), math.prod(shape)))
        for place, inside in self.window.sources(shape, circular=False):
            np.add.at(mixing, (np.flatnonzero(inside), place[inside]), 1.0)
        return mixing / self.window.taps(shape)


@dataclass(frozen=True)
class GlobalAverage(_Mean):
    """The mean over all positions: one position is left."""

    def forward(self, field: Field, width: int | None = None) -> Field:
        axes = 2 if field.stationary else (2, 3)
        kernel = field.kernel.mean(axes, keepdims=True)
        mean = field.mean.mean(1, keepdims=True)
        pooled = field.with_kernel(kernel, shape=(1,), mean=mean, gaussian=field.gaussian)
        return _less_even(pooled, field, width)

    def backward(self, gradient: Field, field: Field) -> Field:
        form = (1, 1, field.positions) if gradient.stationary else (1, 1, field.positions, field.positions)
        kernel = np.full(form, float(gradient.kernel.flat[0]) / field.positions**2)
        return gradient.with_kernel(kernel, shape=field.shape)


@dataclass(frozen=True)
class MaxPooling:
    """max over each window of φ(h), h Gaussian.

    Arguments:
        phi: the activation in front of the pooling, None for none. It belongs here because what follows an activation
            is no longer Gaussian.
        kernel, stride, padding: as in torch; `stride` defaults to the kernel.
        mode: "zeros" stands for no positions beyond the border (−∞, as in torch); a stationary field is taken for
            "circular" only.
    """

    phi: Activation | None = None
    kernel: Sizes = 2
    stride: Sizes | None = None
    padding: Sizes = 0
    mode: Literal["zeros", "circular"] = "zeros"
    seed: int = 0
    mixes_channels: ClassVar[bool] = False

    @property
    def window(self) -> Window:
        return Window(self.kernel, self.kernel if self.stride is None else self.stride, self.padding)

    def forward(self, field: Field, width: int | None = None) -> Field:
        pooled, _, _ = self._drawn(field)
        shape = self.window.output_shape(field.shape)
        kernel = covariance_of(pooled, shape, field.stationary)
        mean = pooled.mean((0, 2))[:, None] if field.stationary else pooled.mean(0)
        noise = 0.0
        if width is not None:
            square = float((pooled[:, 0] ** 2).mean())
            spread = float((pooled[:, 0] ** 4).mean()) / square**2 - 1.0 if square > 0.0 else 0.0
            noise = field.noise + spread / (width * field.effective_positions())
        return field.with_kernel(kernel, shape=shape, mean=mean, gaussian=False, noise=noise)

    def backward(self, gradient: Field, field: Field) -> Field:
        field = field.first()
        _, chosen, slopes = self._drawn(field)
        draws = chosen.shape[0]
        arriving = draw_field(gradient, draws, np.random.default_rng(self.seed + 1))[:, 0] * slopes[:, 0]
        routed = np.zeros((draws, field.positions))
        np.add.at(routed, (np.arange(draws)[:, None], chosen[:, 0]), arriving)
        kernel = covariance_of(routed[:, None], field.shape, gradient.stationary)
        return gradient.with_kernel(kernel, shape=field.shape)

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        """As many independent choices as channels and positions."""
        return GainNoise(1.0 / (width * field.effective_positions()))

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        return () if self.phi is None else (read_by(self.phi, field, width),)

    def error(self, field: Field) -> float:
        """The relative standard error of the variance behind the step, from the scatter of the draws."""
        squares = (self._drawn(field)[0][:, 0] ** 2).mean(1)
        return float(squares.std(ddof=1) / squares.mean() / math.sqrt(len(squares)))

    def _drawn(self, field: Field) -> tuple[Array, Indices, Array]:
        """(draws, inputs, T′) maxima, the position each came from, and φ′ there."""
        if not field.gaussian:
            raise ValueError(
                "max pooling needs a Gaussian field; give it the activation in front of it, MaxPooling(phi=…)."
            )
        if field.stationary != (self.mode == "circular") and field.stationary:
            raise ValueError("a stationary field has no borders; take mode='circular', or field.full().")
        h = draw_field(field, draws_for(field), np.random.default_rng(self.seed))
        q = np.asarray(field.profile)  # of each input, at each position or at all
        x = h if self.phi is None else value_in_wide_layer(self.phi, h, q)
        best = np.full((*h.shape[:2], math.prod(self.window.output_shape(field.shape))), -np.inf)
        chosen = np.zeros(best.shape, dtype=np.intp)
        for place, inside in self.window.sources(field.shape, self.mode == "circular"):
            here = np.where(inside, x[:, :, place], -np.inf)
            chosen = np.where(here > best, place, chosen)
            best = np.maximum(best, here)
        if self.phi is None:
            return best, chosen, np.ones(best.shape)
        spread = np.broadcast_to(q, h.shape)
        at = np.take_along_axis(h, chosen, 2), np.take_along_axis(spread, chosen, 2)
        return best, chosen, np.asarray(slope_in_wide_layer(self.phi, *at))


def _less_even(pooled: Field, field: Field, width: int | None) -> Field:
    """With fewer independent positions the squares of φ's channels even out less; a Gaussian field counts by itself."""
    if width is None or field.gaussian:
        return pooled
    more = 1.0 / pooled.effective_positions() - 1.0 / field.effective_positions()
    return replace(pooled, noise=field.noise + 2.0 * max(more, 0.0) / width)


def _meetings(window: Window, shape: tuple[int, ...]) -> list[Indices]:
    """For each pair of taps (u, v): the input displacement s·d′ + v − u of each output displacement d′, on tori."""
    n = len(shape)
    after, stride = window.output_shape(shape), window.along(window.stride, n)
    if tuple(a * s for a, s in zip(after, stride, strict=True)) != shape:
        raise ValueError(f"a stationary field of {shape} must keep its size up to the stride {stride}, got {after}.")
    ranges = [range(1 - k, k) for k in window.along(window.kernel, n)]
    grids = np.meshgrid(*(s * np.arange(a) for a, s in zip(after, stride, strict=True)), indexing="ij")
    found: list[Indices] = []
    for apart in product(*ranges):
        places = tuple((grid + d) % size for grid, d, size in zip(grids, apart, shape, strict=True))
        count = math.prod(k - abs(d) for k, d in zip(window.along(window.kernel, n), apart, strict=True))
        found.extend([np.ravel_multi_index(places, shape).ravel()] * count)
    return found
