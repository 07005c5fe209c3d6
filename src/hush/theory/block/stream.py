"""A block with a residual stream, x ← x + β f(x), or x ← n(x + β f(x)) with the norm behind the sum.

A branch f ends in a matrix that has met nothing else, so given x its outputs are exactly i.i.d. N(0, v̂), v̂ an average
over the branch's units, and

    p′ = |x + βf|²/N = p + 2β x·f/N + β² |f|²/N

has mean p + β²v and, with s² and t the variance and the third central moment of v̂,

    variance   4β²pv/N + 2β⁴(v² + s²)/N + β⁴s²
    third      24β⁴p(v² + s²)/N² + 8β⁶(v³ + 3vs² + t)/N² + 12β⁴ps²/N + 6β⁶(2vs² + t)/N + β⁶t

Here p is what one measures in the stream, |x|²/N, and not the variance of a draw as in the chain: the stream is carried
along, not drawn anew. A gradient δ that comes back through the block has

    |δ + β Jᵀδ|²/|δ|² = 1 + 2β δ·Jᵀδ/|δ|² + β² |Jᵀδ|²/|δ|²:    mean 1 + β²χ, variance 4β²χ/N + β⁴χ²r

with χ the branch's own gain and r its relative variance.

Behind a norm that follows the sum, p′ = 1, and the gain is divided by the variance p + β²v of the sum. The norm takes
out of the gradient what lies along x; but what comes from the block after has lost that already, along the next x,
which is nearly the same direction. What is there to lose is what the block itself brings: β²v for the angle between the
two x, and what comes back along x through the branch, in all (β²v + β²χ_x)/N, and for a LayerNorm β²χ/N along the mean.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array, Value, as_array, in_form_of
from hush.theory.activations.protocol import Activation
from hush.theory.block.norm import Norm, check_norm, hold, normalise
from hush.theory.block.pair_draws import draw_pair
from hush.theory.block.protocol import LayerNoise

__all__ = ["BranchNoise", "StreamBlock"]


@dataclass(frozen=True)
class BranchNoise:
    """What a branch does at finite width, tabulated over p.

    Attributes:
        variance, third: the variance and the third central moment of v̂.
        gain: χ, with its terms of order 1/N.
        gain_variance: its relative variance.
        shared: the covariance of v̂ and χ̂/χ.
        along: N times what comes back along x, the squared gradient being 1: χ in a direction like any other.
    """

    variance: Array
    third: Array
    gain: Array
    gain_variance: Array
    shared: Array
    along: Array


class StreamBlock(ABC):
    """What all residual blocks share; a subclass says what its branch does. See the module's docstring."""

    phi: Activation
    norm: Norm | None
    branch_scale: float
    post_norm: bool
    positions: int

    def _check(self) -> None:
        check_norm(self.norm)
        if isinstance(self.branch_scale, str):
            raise ValueError(
                f"the branch_scale of a block is a number, got {self.branch_scale!r}; "
                f"resolve_branch_scale makes one of a rule and a depth."
            )
        if not (np.isfinite(self.branch_scale) and self.branch_scale >= 0.0):
            raise ValueError(f"branch_scale must be finite and not negative, got {self.branch_scale}.")
        if self.post_norm and self.norm is None:
            raise ValueError("post_norm needs a norm: 'rms' or 'layer'.")
        if int(self.positions) != self.positions or self.positions < 1:
            raise ValueError(f"positions must be a whole number of at least 1, got {self.positions}.")

    @property
    def keeps_stream(self) -> bool:
        """The stream is carried from block to block."""
        return True

    @property
    def reads_norm(self) -> bool:
        """Whether the branch reads n(x): the norm stands in front."""
        return self.norm is not None and not self.post_norm

    def read_variance(self, p: Value) -> Value:
        """The second moment of what the branch reads: 1 behind a norm, else p."""
        return in_form_of(p, np.ones_like(as_array(p))) if self.reads_norm else p

    def norm_slope(self, p: Value) -> Value:
        """d/dp of it, as far as a branch is concerned: 0 behind a norm, else 1."""
        full = np.zeros_like(as_array(p)) if self.reads_norm else np.ones_like(as_array(p))
        return in_form_of(p, full)

    # --- the branch, said by the subclass ---

    @abstractmethod
    def branch_variance(self, p: Value) -> Value:
        """v: the variance of f."""

    @abstractmethod
    def branch_variance_slope(self, p: Value) -> Value:
        """dv/dp."""

    @abstractmethod
    def branch_variance_curvature(self, p: Value) -> Value:
        """d²v/dp²."""

    @abstractmethod
    def preactivation_variance(self, p: Value) -> Value:
        """q, the variance of what the activation reads."""

    @abstractmethod
    def branch_gain(self, p: Value) -> Value:
        """χ: the mean factor of a squared gradient through the branch alone, β left out."""

    @abstractmethod
    def branch_covariance_and_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> tuple[Value, Value]:
        """The covariance of f(x_a) and f(x_b), and its derivative in the streams' correlation ρ."""

    @abstractmethod
    def branch_noise(self, width: int, p: Array) -> BranchNoise:
        """What a branch does in a stream of `width` units."""

    @abstractmethod
    def branch_pair(self, n_a: Array, n_b: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """(v̂_a, v̂_b, ĉ): the drawn variances and covariance of f for two inputs read as n_a, n_b (pairs, width)."""

    # --- infinitely wide ---

    def variance(self, p: Value) -> Value:
        """V(p) = p + β²v(p), or 1 behind a norm."""
        if self.post_norm:
            return in_form_of(p, np.ones_like(as_array(p)))
        return self._sum_variance(p)

    def variance_slope(self, p: Value) -> Value:
        """V′(p) = 1 + β²v′(p), or 0 behind a norm."""
        if self.post_norm:
            return in_form_of(p, np.zeros_like(as_array(p)))
        return 1.0 + self.branch_scale**2 * self.branch_variance_slope(p)

    def variance_curvature(self, p: Value) -> Value:
        """V″(p) = β²v″(p), or 0 behind a norm."""
        if self.post_norm:
            return in_form_of(p, np.zeros_like(as_array(p)))
        return self.branch_scale**2 * self.branch_variance_curvature(p)

    def _sum_variance(self, p: Value) -> Value:
        return p + self.branch_scale**2 * self.branch_variance(p)

    def gain(self, p: Value) -> Value:
        """1 + β²χ(p); behind a norm divided by p + β²v(p)."""
        through = 1.0 + self.branch_scale**2 * self.branch_gain(p)
        return through / self._sum_variance(p) if self.post_norm else through

    def covariance(self, rho: Value, p_a: float | Value, p_b: float | Value) -> Value:
        """ρ√(p_a p_b) + β² times the branch's; behind a norm divided by the two sums' deviations."""
        return self.covariance_and_slope(rho, p_a, p_b)[0]

    def covariance_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> Value:
        return self.covariance_and_slope(rho, p_a, p_b)[1]

    def covariance_and_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> tuple[Value, Value]:
        value, slope = self.branch_covariance_and_slope(rho, p_a, p_b)
        size, beta2 = np.sqrt(as_array(p_a) * as_array(p_b)), self.branch_scale**2
        after, after_slope = rho * size + beta2 * as_array(value), size + beta2 * as_array(slope)
        if self.post_norm:
            over = np.sqrt(self._sum_variance(as_array(p_a)) * self._sum_variance(as_array(p_b)))
            after, after_slope = after / over, after_slope / over
        after, after_slope = np.asarray(after), np.asarray(after_slope)
        return in_form_of(after, after), in_form_of(after_slope, after_slope)  # type: ignore[return-value]

    def sparsity(self, p: Value) -> Value:
        """P(φ(√q z) = 0)."""
        return self.phi.sparsity(self.preactivation_variance(p))

    def saturation(self, p: Value) -> Value:
        """P(φ ≠ 0, φ′ = 0)."""
        return self.phi.saturation(self.preactivation_variance(p))

    # --- of finite width ---

    def noise(self, width: int, p: Array) -> LayerNoise:
        """The moments of p′ and of the gain; see the module's docstring."""
        b2 = self.branch_scale**2
        v, branch = as_array(self.branch_variance(p)), self.branch_noise(width, p)
        square = v**2 + branch.variance
        spread = 4.0 * b2 * p * v / width + 2.0 * b2**2 * square / width + b2**2 * branch.variance
        third = 24.0 * b2**2 * p * square / width**2 + 12.0 * b2**2 * p * branch.variance / width
        third = third + 8.0 * b2**3 * (v**3 + 3.0 * v * branch.variance + branch.third) / width**2
        third = third + b2**3 * (6.0 * (2.0 * v * branch.variance + branch.third) / width + branch.third)
        gain = 1.0 + b2 * branch.gain
        # The gradients of many positions even out the part that depends on their direction.
        through = 4.0 * b2 * branch.gain / (width * self.positions)
        through = through + (b2 * branch.gain) ** 2 * branch.gain_variance
        relative = through / gain**2
        common = b2 * (b2 * branch.gain / gain) * branch.shared
        total = p + b2 * v
        if self.post_norm:
            # δ passes the norm first: divided by the variance of this very sum, which has the noise of p′.
            lost = b2 * v + b2 * branch.along + (b2 * branch.gain if self.norm == "layer" else 0.0)
            gain = (gain - lost / width) / total * (1.0 + spread / total**2)
            relative = np.maximum(relative + spread / total**2 - 2.0 * common / total, 0.0)
            zero = np.zeros_like(total)
            return LayerNoise(np.ones_like(total), zero, zero, np.log10(gain), relative, zero)
        tiny = np.finfo(np.float64).tiny
        deviation = np.sqrt(spread)
        return LayerNoise(
            mean=total,
            deviation=deviation,
            skewness=np.divide(third, spread * deviation, out=np.zeros_like(spread), where=spread > 1e-200),
            gain_log10=np.log10(gain),
            gain_variance=relative,
            shared=np.clip(common / np.sqrt(np.maximum(spread * relative, tiny)), -1.0, 1.0),
        )

    def next_pair(self, x_a: Array, x_b: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Both streams after the block, the weights drawn."""
        front = self.norm if self.reads_norm else None
        f_a, f_b = draw_pair(
            *self.branch_pair(normalise(front, x_a)[0], normalise(front, x_b)[0], rng), x_a.shape[1], rng
        )
        sums = (x_a + self.branch_scale * f_a, x_b + self.branch_scale * f_b)
        behind = self.norm if self.post_norm else None
        return hold(normalise(behind, sums[0])[0]), hold(normalise(behind, sums[1])[0])

    # --- where to look ---

    def reachable(self) -> tuple[float, float]:
        """Any variance: the noise of x·f may shrink a stream, and nothing bounds it above. 1 behind a norm."""
        return (1.0, 1.0) if self.post_norm else (0.0, np.inf)

    @property
    def scales(self) -> tuple[float, ...]:
        """None: V only ever adds, or is constant."""
        return ()
