"""What the theory asks of a block, the part that a deep network repeats.

A block carries a stream of variance p from one layer to the next, and inside it has pre-activations of variance q. In
the plain chain the stream *is* the pre-activation and q = p; in a block with a residual stream they differ. Fixed
points, phases, bands, odds and designs are written against this protocol and know no formula of any block.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hush.theory._arrays import Array, Value
from hush.theory.activations.protocol import Activation

__all__ = ["Block", "LayerNoise"]


@dataclass(frozen=True)
class LayerNoise:
    """What one block does at finite width to a stream of variance p, tabulated over p: each figure one array.

    Attributes:
        mean: of the next p.
        deviation: its standard deviation.
        skewness: its skewness.
        gain_log10: log10 of the mean gain of a squared gradient through the block, backwards.
        gain_variance: the relative variance of that gain.
        shared: the correlation of the gain with the next p; both are averages over the same units.
    """

    mean: Array
    deviation: Array
    skewness: Array
    gain_log10: Array
    gain_variance: Array
    shared: Array


class Block(Protocol):
    """One block of a deep network; hashable, equal where it is the same block."""

    @property
    def phi(self) -> Activation:
        """Its activation."""
        ...

    @property
    def positions(self) -> int:
        """How many positions share the weights: 1 for a Linear, the size of the feature map for a convolution."""
        ...

    def __hash__(self) -> int: ...

    # --- infinitely wide ---

    def variance(self, p: Value) -> Value:
        """p′ = V(p), the variance of the stream after the block."""
        ...

    def variance_slope(self, p: Value) -> Value:
        """V′(p)."""
        ...

    def variance_curvature(self, p: Value) -> Value:
        """V″(p)."""
        ...

    def preactivation_variance(self, p: Value) -> Value:
        """q, the variance of what the activation reads."""
        ...

    def gain(self, p: Value) -> Value:
        """χ₁: the mean factor by which a squared gradient grows on its way back through the block."""
        ...

    def covariance(self, rho: Value, p_a: float | Value, p_b: float | Value) -> Value:
        """The covariance, after the block, of two streams of variances p_a, p_b and correlation ρ."""
        ...

    def covariance_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> Value:
        """Its derivative in ρ."""
        ...

    def covariance_and_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> tuple[Value, Value]:
        """Both, in little more time than one of them."""
        ...

    def sparsity(self, p: Value) -> Value:
        """The share of units that are exactly zero."""
        ...

    def saturation(self, p: Value) -> Value:
        """The share of units that are active forward and silent backward."""
        ...

    # --- of finite width ---

    def noise(self, width: int, p: Array) -> LayerNoise:
        """What `width` units make of a stream of variance p."""
        ...

    def next_pair(self, x_a: Array, x_b: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """The streams of two inputs after a block whose weights are drawn, from those before, of shape (pairs,
        width)."""
        ...

    @property
    def keeps_stream(self) -> bool:
        """Whether the stream is carried along (p is then |x|²/N as measured) or drawn anew (p is then the variance of
        the draw, and what one measures has the noise of N draws on top)."""
        ...

    @property
    def keeps_units(self) -> bool:
        """Whether the noise of one block is that of the next, so that all N units must be run: where φ reads the very
        units of the stream, or the gradient goes on along the same direction."""
        ...

    def preactivation_units(self, width: int) -> int | None:
        """How many draws a measured q is an average over; None where q follows from p."""
        ...

    # --- where to look ---

    def reachable(self) -> tuple[float, float]:
        """The smallest and the largest variance that the block can give out."""
        ...

    @property
    def scales(self) -> tuple[float, ...]:
        """The smallest and the largest √p at which V changes its shape; empty when V is a straight line."""
        ...
