"""One matrix on a residual stream: x ← x + β(W φ(n(x)) + b), so that every product is with a sparse vector.

The pre-activation is n(x) itself: q = γ² behind a norm whose weight is γ in every unit, and q = p without one. With
x = √q z

    v = σ_w² E[φ²] + σ_b²,    χ = σ_w² γ² E[φ′²]/p behind a norm, σ_w² E[φ′²] without

and at width N, given |n(x)|² = Nq: v̂ has variance σ_w⁴(Var φ² − 2q²(dE[φ²]/dq)²)/N, for the part of Σφ² that goes with
Σx² is known; and the norm takes out of D Wᵀδ its part along x, a share E[z²φ′²]/(N E[φ′²]), more than one in N because
the units that pass a gradient are those with large z.

The units of one block are those of the next. A unit far out stays far out for as long as the stream remembers it, so
the averages over units are *not* drawn anew from block to block, and a Markov chain in p alone would lose most of the
noise. The chains of this block therefore carry all N units (`unit_run`).
"""

from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array, Value, as_array, in_form_of
from hush.theory._checks import check_positive, check_sigmas
from hush.theory.activations.protocol import Activation
from hush.theory.activations.relative import Relative
from hush.theory.block.norm import Norm
from hush.theory.block.relative_layer import on_units, relative_layer
from hush.theory.block.stream import BranchNoise, StreamBlock

__all__ = ["Residual"]


@dataclass(frozen=True)
class Residual(StreamBlock):
    """x ← x + β(W φ(n(x)) + b), or with `post_norm` x ← n(x + β(W φ(x) + b)).

    Arguments:
        sigma_w, sigma_b: weights are N(0, σ_w²/N), biases N(0, σ_b²).
        norm: None, "rms" or "layer".
        branch_scale: β, a number; `resolve_branch_scale` makes one of a rule and a depth.
        positions: how many positions share the weights; 1 for a Linear.
        norm_weight: γ, what the norm in front multiplies every unit with.

    Raises:
        ValueError: if a value is out of its range.
    """

    phi: Activation
    sigma_w: float
    sigma_b: float = 0.0
    norm: Norm | None = None
    branch_scale: float = 1.0
    post_norm: bool = False
    positions: int = 1
    norm_weight: float = 1.0

    def __post_init__(self) -> None:
        check_sigmas(self.sigma_w, self.sigma_b)
        self._check()
        check_positive("norm_weight", self.norm_weight)
        if self.norm_weight != 1.0 and not self.reads_norm:
            raise ValueError(
                f"norm_weight belongs to a norm in front of the branch, and there is none; got {self.norm_weight}."
            )

    @property
    def keeps_units(self) -> bool:
        """The units that φ reads are those of the stream, block after block."""
        return True

    def preactivation_units(self, width: int) -> int | None:
        """None: q is p or γ², with no draw in between."""
        return None

    def read_variance(self, p: Value) -> Value:
        """γ² behind a norm, else p."""
        return in_form_of(p, np.full_like(as_array(p), self.norm_weight**2)) if self.reads_norm else p

    def preactivation_variance(self, p: Value) -> Value:
        """What the branch reads is what φ reads."""
        return self.read_variance(p)

    def branch_variance(self, p: Value) -> Value:
        """σ_w² E[φ²] + σ_b²."""
        return self.sigma_w**2 * self.phi.second_moment(self.read_variance(p)) + self.sigma_b**2

    def branch_variance_slope(self, p: Value) -> Value:
        return self.sigma_w**2 * self.phi.second_moment_slope(self.read_variance(p)) * self.norm_slope(p)

    def branch_variance_curvature(self, p: Value) -> Value:
        return self.sigma_w**2 * self.phi.second_moment_curvature(self.read_variance(p)) * self.norm_slope(p)

    def branch_gain(self, p: Value) -> Value:
        """σ_w² E[φ′²], times γ²/p behind a norm."""
        through = self.sigma_w**2 * self.phi.slope_moment(1, self.read_variance(p))
        return through * self.norm_weight**2 / p if self.reads_norm else through

    def branch_covariance_and_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> tuple[Value, Value]:
        """σ_w² E[φ(u_a)φ(u_b)] + σ_b², u of correlation ρ."""
        q_a, q_b = self.read_variance(as_array(p_a)), self.read_variance(as_array(p_b))
        found = self.phi.cross_moment_and_slope(as_array(rho), q_a, q_b)
        value, slope = (np.asarray(self.sigma_w**2 * as_array(part)) for part in found)
        value = value + self.sigma_b**2
        return in_form_of(value, value), in_form_of(slope, slope)  # type: ignore[return-value]

    def branch_noise(self, width: int, p: Array) -> BranchNoise:
        phi, w2, q = self.phi, self.sigma_w**2, self.read_variance(p)
        sixth, fourth, second = phi.moment(6, q), phi.moment(4, q), phi.moment(2, q)
        mu_1, mu_2 = phi.slope_moment(1, q), phi.slope_moment(2, q)
        safe = np.maximum(mu_1, 1e-100)
        # What Σx², which is given, knows of Σφ² and of Σφ′².
        slope, sent_along = phi.second_moment_slope(q), phi.input_slope_moment(q)
        if isinstance(phi, Relative):
            # With Σx² a threshold in units of the layer's own size is given, so it is one of √q.
            slope, sent_along = relative_layer(phi).slope * np.ones_like(p), q * relative_layer(phi).along
        known, known_slope = 2.0 * q**2 * slope, phi.input_slope_moment(q) - q * mu_1
        spread = np.maximum(fourth - second**2 - known**2 / (2.0 * q**2), 0.0)
        gain = as_array(self.branch_gain(p))
        if self.reads_norm:
            gain = gain * (1.0 - phi.input_slope_moment(q) / (q * safe) / width)
        if self.reads_norm and self.norm == "layer":
            gain = gain * (1.0 - 1.0 / width)
        if isinstance(phi, Relative) and not self.reads_norm:
            gain = gain * (1.0 + relative_layer(phi).mean_shift / safe / width)
        common = phi.square_slope_moment(q) - second * mu_1 - known * known_slope / (2.0 * q**2)
        return BranchNoise(
            variance=w2**2 * spread / width,
            third=w2**3 * np.maximum(sixth - 3.0 * fourth * second + 2.0 * second**3, 0.0) / width**2,
            gain=gain,
            gain_variance=np.maximum((1.0 + 2.0 / self.positions) * mu_2 / safe**2 - 1.0, 0.0) / width,
            shared=w2 * common / (width * safe),
            along=w2 * sent_along / q,
        )

    def branch_pair(self, n_a: Array, n_b: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        x_a, x_b = (on_units(self.phi, self.norm_weight * n) for n in (n_a, n_b))
        v_a, v_b, covariance = (
            self.sigma_w**2 * (x * y).mean(1) + self.sigma_b**2 for x, y in ((x_a, x_a), (x_b, x_b), (x_a, x_b))
        )
        return v_a, v_b, covariance
