"""The plain chain of the paper: h ← W φ(h) + b, weights N(0, σ_w²/fan-in), biases N(0, σ_b²).

The stream is the pre-activation h itself, of variance q. Given h, the next h_j are exactly i.i.d. N(0, k), and at width
N

    k′ = σ_w² (1/N) Σ_j φ(h_j)² + σ_b²               mean V(k), variance σ_w⁴ Var[φ²]/N
    |δ_l|²/|δ_{l+1}|² = σ_w² (1/N) Σ_j φ′(h_j)² g_j²  mean χ₁(k), relative variance (3μ₂/μ₁² − 1)/N

with the same h_j in both, so the two are correlated, and g_j ~ N(0, 1). The backward pass meets the very weights of the
forward pass: along x = φ(h_l) the next layer's h is known, and the units that pass a gradient are those with large h,
which raises the gain by a relative u k_w (H − k)/(N k² μ₁), where u = E[φ²φ′²]/E[φ²], k_w = k − σ_b² and H =
E[x²φ′²]/E[φ′²].

In a convolution the gradient's norm is a sum over `positions` too, which evens out g_j²: (1 + 2/positions)μ₂/μ₁² − 1
takes the place of 3μ₂/μ₁² − 1. The q of the positions move together (their correlation goes to 1), so k keeps its
noise.
"""

import math
from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array, Value
from hush.theory._checks import check_sigmas
from hush.theory.activations.protocol import Activation
from hush.theory.activations.relative import Relative
from hush.theory.block.pair_draws import draw_pair
from hush.theory.block.protocol import LayerNoise
from hush.theory.block.relative_layer import RelativeLayer, on_units, relative_layer

__all__ = ["Chain"]


@dataclass(frozen=True)
class Chain:
    """h ← W φ(h) + b.

    Arguments:
        sigma_w, sigma_b: weights are N(0, σ_w²/fan-in), biases N(0, σ_b²).
        positions: 1 for an MLP, the size of the feature map (height × width) for a CNN.

    Raises:
        ValueError: if σ_w or σ_b is negative or not finite, or positions is not a whole number of at least 1.
    """

    phi: Activation
    sigma_w: float
    sigma_b: float
    positions: int = 1

    def __post_init__(self) -> None:
        check_sigmas(self.sigma_w, self.sigma_b)
        if int(self.positions) != self.positions or self.positions < 1:
            raise ValueError(f"positions must be a whole number of at least 1, got {self.positions}.")

    # --- infinitely wide ---

    def variance(self, p: Value) -> Value:
        """V(q) = σ_w² E[φ(√q z)²] + σ_b² (paper, eq. 3)."""
        return self.sigma_w**2 * self.phi.second_moment(p) + self.sigma_b**2

    def variance_slope(self, p: Value) -> Value:
        """V′(q) = σ_w² E[φ φ′ x]/q, x = √q z; for CReLU the paper's eq. 13."""
        return self.sigma_w**2 * self.phi.second_moment_slope(p)

    def variance_curvature(self, p: Value) -> Value:
        """V″(q) = σ_w² E[φ φ′ x (z² − 3)]/(2q²), x = √q z; for ReLU_τ the paper's eq. 40."""
        return self.sigma_w**2 * self.phi.second_moment_curvature(p)

    def preactivation_variance(self, p: Value) -> Value:
        """The stream is the pre-activation."""
        return p

    def gain(self, p: Value) -> Value:
        """χ₁ = σ_w² E[φ′(√q z)²] (paper, eq. 11). Jumps are left out."""
        return self.sigma_w**2 * self.phi.slope_moment(1, p)

    def covariance(self, rho: Value, p_a: float | Value, p_b: float | Value) -> Value:
        """σ_w² E[φ(u₁)φ(u₂)] + σ_b²."""
        return self.sigma_w**2 * self.phi.cross_moment(rho, p_a, p_b) + self.sigma_b**2

    def covariance_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> Value:
        """σ_w² √(q_a q_b) E[φ′(u₁)φ′(u₂)]."""
        return self.sigma_w**2 * self.phi.cross_moment_slope(rho, p_a, p_b)

    def covariance_and_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> tuple[Value, Value]:
        value, slope = self.phi.cross_moment_and_slope(rho, p_a, p_b)
        return self.sigma_w**2 * value + self.sigma_b**2, self.sigma_w**2 * slope

    def sparsity(self, p: Value) -> Value:
        """P(φ(√q z) = 0)."""
        return self.phi.sparsity(p)

    def saturation(self, p: Value) -> Value:
        """P(φ ≠ 0, φ′ = 0)."""
        return self.phi.saturation(p)

    # --- of finite width ---

    def noise(self, width: int, p: Array) -> LayerNoise:
        """The moments of both averages over N = width units; see the module's docstring."""
        if isinstance(self.phi, Relative):
            return self._relative_noise(relative_layer(self.phi), width, p)
        phi, w2, b2 = self.phi, self.sigma_w**2, self.sigma_b**2
        # The highest moment first: computing it leaves the lower ones ready.
        sixth, fourth, second = phi.moment(6, p), phi.moment(4, p), phi.moment(2, p)
        mu_1, mu_2 = phi.slope_moment(1, p), phi.slope_moment(2, p)
        fourth_g = 1.0 + 2.0 / self.positions  # E[g⁴] of a single position, 1 of very many
        tiny = np.finfo(np.float64).tiny
        # A φ that is silent or constant at this k has no spread and no gradient.
        variance = np.maximum(fourth - second**2, 1e-13 * fourth + tiny)
        skewness = np.maximum(sixth - 3.0 * fourth * second + 2.0 * second**3, 0.0) / variance / np.sqrt(variance)
        alive = mu_1 > 1e-12
        safe_mu = np.where(alive, mu_1, 1.0)
        gain_variance = np.where(alive, (fourth_g * mu_2 / safe_mu**2 - 1.0) / width, 0.0)
        both = phi.square_slope_moment(p)
        # What the weights' memory of the forward pass adds to the gain. In a CNN only the mean of the gradient over the
        # positions meets the x that they share.
        further_out = np.where(alive, phi.input_slope_moment(p) / safe_mu, p) - p
        forward_share = both / np.maximum(second, tiny) * (1.0 - b2 / np.maximum(p, b2 + tiny))
        with np.errstate(over="ignore"):
            # The chains tabulate over a p in single precision; where this overflows there is no memory left, and 0 is
            # right.
            memory = forward_share * further_out / (width * self.positions * p * safe_mu)
        covariance = both - second * mu_1
        shared = np.clip(covariance / np.sqrt(variance * np.maximum(fourth_g * mu_2 - mu_1**2, tiny) + tiny), -1.0, 1.0)
        return LayerNoise(
            mean=w2 * second + b2,
            deviation=w2 * np.sqrt(variance / width),
            skewness=skewness / np.sqrt(width),
            gain_log10=np.log10(w2 * np.maximum(mu_1, 1e-12)) + np.log10(1.0 + np.clip(memory, -0.5, 2.0)),
            gain_variance=gain_variance,
            shared=np.where(alive, shared, 0.0),
        )

    def _relative_noise(self, layer: RelativeLayer, width: int, p: Array) -> LayerNoise:
        """The same of a threshold in units of the layer's own size; nothing but the scale depends on p."""
        w2, b2, fourth_g = self.sigma_w**2, self.sigma_b**2, 1.0 + 2.0 / self.positions
        e, mu_1, n = layer.second, layer.mu_1, float(width)
        variance = max(layer.square_variance, 1e-13 * layer.fourth)
        slopes = max(fourth_g * layer.mu_2 - mu_1**2 - 0.5 * layer.slope_known**2, 0.0)
        common = layer.both - e * mu_1 - layer.slope * layer.slope_known
        shared = common / math.sqrt(variance * slopes) if slopes > 0.0 else 0.0
        # What the weights' memory of the forward pass adds: along h so much more comes back than in any direction.
        share = 1.0 - b2 / np.maximum(p, b2 + np.finfo(np.float64).tiny)
        further = share * (layer.along / mu_1 - 1.0)
        if layer.through_scale:
            # And what comes back along h here came back along h from the layer behind: h·Jᵀg = x·g.
            further = further / np.maximum(1.0 - share * e / mu_1, 0.1)
        memory = layer.passed / mu_1 * further / (n * self.positions)
        gain = max(mu_1 + layer.mean_shift / n, 1e-12)
        flat = np.ones_like(p)
        return LayerNoise(
            mean=w2 * p * max(e - layer.curvature / n, 0.0) + b2,
            deviation=w2 * p * math.sqrt(variance / n),
            skewness=flat * (max(layer.square_third, 0.0) / variance**1.5 / math.sqrt(n)),
            gain_log10=math.log10(w2 * gain) + np.log10(1.0 + np.clip(memory, -0.5, 2.0)) if w2 else -12.0 * flat,
            gain_variance=flat * (slopes / mu_1**2 / n),
            shared=flat * min(max(shared, -1.0), 1.0),
        )

    def propagate_pairs(self, h_a: Array, h_b: Array) -> tuple[Array, Array, Array]:
        """σ_w² times the means of φ(h_a)², φ(h_b)² and φ(h_a)φ(h_b) over the units, each plus σ_b²."""
        x_a, x_b = on_units(self.phi, h_a), on_units(self.phi, h_b)
        p_a, p_b, covariance = (
            self.sigma_w**2 * (x * y).mean(1) + self.sigma_b**2 for x, y in ((x_a, x_a), (x_b, x_b), (x_a, x_b))
        )
        return p_a, p_b, covariance

    def next_pair(self, x_a: Array, x_b: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Pre-activations drawn with the covariance that `propagate_pairs` gives."""
        return draw_pair(*self.propagate_pairs(x_a, x_b), x_a.shape[1], rng)

    @property
    def keeps_stream(self) -> bool:
        """Every layer draws its pre-activations anew."""
        return False

    @property
    def keeps_units(self) -> bool:
        """Whether the gradient remembers: with a relative threshold whose size counts as a constant, what comes back
        along h in one layer does so in all before it, hardly weaker, and no two layers alone tell how much that is."""
        return isinstance(self.phi, Relative) and not self.phi.through_scale and self.positions == 1

    def preactivation_units(self, width: int) -> int | None:
        """The layer's own."""
        return width

    # --- where to look ---

    def reachable(self) -> tuple[float, float]:
        """From σ_b², all units silent, to σ_w² sup φ² + σ_b²."""
        bound, w2, b2 = self.phi.bound(), self.sigma_w**2, self.sigma_b**2
        # bound·bound and not bound**2, which Python refuses to let overflow.
        return b2, w2 * (bound * bound) + b2 if w2 else b2

    @property
    def scales(self) -> tuple[float, ...]:
        return self.phi.scales
