"""Two matrices on a residual stream: x ← x + β(W₂ a + b₂), a = φ(W₁ n(x) + b₁), or gated a = φ(W₁ n(x) + b₁) ∘ W_u
n(x).

With n² = 1 behind a norm and n² = p without one, the pre-activation has q = σ₁²n² + σ_b1² and the other factor of a
gated block u = σ_u²n² (in a plain one, 1 and no noise). W₁ is drawn anew in every block, so its H hidden units are
i.i.d. given |n(x)|², and the noise of every block is its own. With x = √q z, U_k = E[u^k] = u^{k/2}(k − 1)!!, in a
plain block 1,

    v     = σ₂² U₂ E[φ²] + σ_b2²                   v̂: variance σ₂⁴ (U₄ E[φ⁴] − U₂² E[φ²]²)/H
    T     = σ₁² u² φ′² + σ_u² φ²                   what a hidden unit sends back, u² = 1 and σ_u = 0 in a plain block
    χ     = σ₂² E[T], over p behind a norm         relative variance (3E[T²]/E[T]² − 1)/H + 2/N

The matrix W₁ that sends the gradient back is the one that made h, so along n(x) its output is known: W₁ᵀδ_h has there
the squared length (h·δ_h)²/|n|², whose mean is E[h²φ′²]/(q E[φ′²]) times that in any other direction. Without a norm
the excess, in one of N directions, adds to χ; behind one it is exactly the direction that the norm takes out.
"""

from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array, Value, as_array, in_form_of
from hush.theory._checks import check_sigmas
from hush.theory.activations.protocol import Activation
from hush.theory.activations.relative import Relative
from hush.theory.block.norm import Norm, lost_directions
from hush.theory.block.pair_draws import draw_pair
from hush.theory.block.relative_layer import on_units, relative_layer
from hush.theory.block.stream import BranchNoise, StreamBlock

__all__ = ["FeedForward"]


@dataclass(frozen=True)
class FeedForward(StreamBlock):
    """x ← x + β(W₂ φ(W₁ n(x) + b₁) + b₂); gated, φ(W₁ n(x) + b₁) ∘ (W_u n(x)) in the place of φ(…).

    Arguments:
        sigma_1, sigma_b1: of the matrix and bias that feed φ, variances σ₁²/fan-in and σ_b1².
        sigma_2, sigma_b2: of those that write to the stream.
        sigma_up: of the matrix W_u of a gated block; None where there is no gate.
        norm: None, "rms" or "layer", in front of the branch, or with `post_norm` behind the sum.
        branch_scale: β, a number; `resolve_branch_scale` makes one of a rule and a depth.
        expansion: hidden units per unit of the stream.
        positions: how many positions share the weights; 1 for a Linear.

    Raises:
        ValueError: if a value is out of its range.
    """

    phi: Activation
    sigma_1: float
    sigma_b1: float = 0.0
    sigma_2: float = 1.0
    sigma_b2: float = 0.0
    norm: Norm | None = None
    branch_scale: float = 1.0
    expansion: float = 4.0
    sigma_up: float | None = None
    post_norm: bool = False
    positions: int = 1

    def __post_init__(self) -> None:
        check_sigmas(self.sigma_1, self.sigma_b1)
        check_sigmas(self.sigma_2, self.sigma_b2)
        if self.sigma_up is not None:
            check_sigmas(self.sigma_up, 0.0)
        if not (np.isfinite(self.expansion) and self.expansion > 0.0):
            raise ValueError(f"expansion must be positive and finite, got {self.expansion}.")
        self._check()

    @property
    def keeps_units(self) -> bool:
        """Every block draws its hidden units anew."""
        return False

    def preactivation_units(self, width: int) -> int | None:
        """The hidden units, over which a measured q is an average."""
        return max(1, round(self.expansion * width))

    def preactivation_variance(self, p: Value) -> Value:
        """σ₁²n² + σ_b1²."""
        return self.sigma_1**2 * self.read_variance(p) + self.sigma_b1**2

    def up_variance(self, p: Value) -> Value:
        """The variance of W_u n(x), 1 where there is no gate."""
        if self.sigma_up is None:
            return in_form_of(p, np.ones_like(as_array(p)))
        return self.sigma_up**2 * self.read_variance(p)

    def branch_variance(self, p: Value) -> Value:
        """σ₂² U₂ E[φ²] + σ_b2²."""
        second = self.phi.second_moment(self.preactivation_variance(p))
        return self.sigma_2**2 * self.up_variance(p) * second + self.sigma_b2**2

    def branch_variance_slope(self, p: Value) -> Value:
        q, s1, su = self.preactivation_variance(p), self.sigma_1**2, self._up_square
        slope = s1 * self.phi.second_moment_slope(q) * self.up_variance(p) + su * self.phi.second_moment(q)
        return self.sigma_2**2 * slope * self.norm_slope(p)

    def branch_variance_curvature(self, p: Value) -> Value:
        q, s1, su = self.preactivation_variance(p), self.sigma_1**2, self._up_square
        curvature = s1**2 * self.phi.second_moment_curvature(q) * self.up_variance(p)
        curvature = curvature + 2.0 * s1 * su * self.phi.second_moment_slope(q)
        return self.sigma_2**2 * curvature * self.norm_slope(p)

    @property
    def _up_square(self) -> float:
        return 0.0 if self.sigma_up is None else self.sigma_up**2

    def branch_gain(self, p: Value) -> Value:
        """σ₂² E[T], over p behind a norm."""
        q = self.preactivation_variance(p)
        sent = self.sigma_1**2 * self.up_variance(p) * self.phi.slope_moment(1, q)
        through = self.sigma_2**2 * (sent + self._up_square * self.phi.second_moment(q))
        return through / p if self.reads_norm else through

    def branch_covariance_and_slope(self, rho: Value, p_a: float | Value, p_b: float | Value) -> tuple[Value, Value]:
        """σ₂² E[φ(h_a)φ(h_b)] E[u_a u_b] + σ_b2²; cov(h_a, h_b) = σ₁²ρ√(n_a²n_b²) + σ_b1²."""
        n_a, n_b = (as_array(self.read_variance(as_array(p))) for p in (p_a, p_b))
        q_a, q_b = (np.asarray(self.sigma_1**2 * n + self.sigma_b1**2) for n in (n_a, n_b))
        size, over = np.sqrt(n_a * n_b), np.sqrt(q_a * q_b)
        per_rho = self.sigma_1**2 * size / np.where(over > 0.0, over, 1.0)
        inner = np.clip(rho * per_rho + self.sigma_b1**2 / np.where(over > 0.0, over, 1.0), -1.0, 1.0)
        found = self.phi.cross_moment_and_slope(in_form_of(inner, inner), in_form_of(q_a, q_a), in_form_of(q_b, q_b))
        value, slope = as_array(found[0]), as_array(found[1]) * per_rho
        if self.sigma_up is not None:
            up = self.sigma_up**2 * size
            value, slope = value * up * rho, slope * up * rho + value * up
        value, slope = np.asarray(self.sigma_2**2 * value + self.sigma_b2**2), np.asarray(self.sigma_2**2 * slope)
        return in_form_of(value, value), in_form_of(slope, slope)  # type: ignore[return-value]

    def branch_noise(self, width: int, p: Array) -> BranchNoise:
        phi, hidden = self.phi, max(1, round(self.expansion * width))
        q, w2, s1, su = self.preactivation_variance(p), self.sigma_2**2, self.sigma_1**2, self._up_square
        gated = self.sigma_up is not None
        u_2 = self.up_variance(p)
        u_4, u_6 = (3.0 * u_2**2, 15.0 * u_2**3) if gated else (u_2, u_2)
        sixth, fourth, second = u_6 * phi.moment(6, q), phi.moment(4, q), phi.moment(2, q)
        mu_1, mu_2, both = phi.slope_moment(1, q), phi.slope_moment(2, q), phi.square_slope_moment(q)
        sent = s1 * u_2 * mu_1 + su * second
        sent_square = s1**2 * u_4 * mu_2 + 2.0 * s1 * su * u_2 * both + su**2 * fourth
        with_square = s1 * u_4 * both + su * u_2 * fourth
        # From here on of a = φ·u, not of φ.
        fourth, second = u_4 * fourth, u_2 * second
        spread, third = fourth - second**2, sixth - 3.0 * fourth * second + 2.0 * second**3
        safe = np.maximum(sent, 1e-100)
        gain, along = as_array(self.branch_gain(p)), self._sent_along(p)
        fourth_g = 1.0 + 2.0 / self.positions
        sent_spread, common = fourth_g * sent_square - sent**2, with_square - second * sent
        if isinstance(phi, Relative):
            # The size of the hidden layer is measured: what an average has in common with it goes, and comes back with
            # the size itself, which φ² carries and φ′ does not.
            layer, size = relative_layer(phi), su * phi.second_moment(q)
            known, known_sent = 2.0 * layer.slope * q * u_2, s1 * u_2 * layer.slope_known + su * 2.0 * layer.slope * q
            spread = spread - 0.5 * known**2 + 2.0 * second**2
            sent_spread = sent_spread - 0.5 * known_sent**2 + 2.0 * size**2
            common = common - 0.5 * known * known_sent + 2.0 * second * size
            gain = gain * (1.0 + s1 * u_2 * layer.mean_shift / (safe * hidden))
            if not gated:
                third = q**3 * layer.square_third
        spread = np.maximum(spread, 0.0)
        if self.reads_norm:
            gain = gain * (1.0 - lost_directions(self.norm) / width)
        else:
            gain = gain * (1.0 + (along / safe - 1.0) / width)
        return BranchNoise(
            variance=w2**2 * spread / hidden,
            third=w2**3 * np.maximum(third, 0.0) / hidden**2,
            gain=gain,
            gain_variance=np.maximum(sent_spread / safe**2, 0.0) / hidden + 2.0 / (width * self.positions),
            shared=w2 * common / (hidden * safe),
            along=w2 * along,
        )

    def _sent_along(self, p: Array) -> Array:
        """E[(h′δ_h + uδ_u)²]/n² of a hidden unit, h′ = h − b₁: what goes back along the stream, where T is what goes
        back in any other direction."""
        phi, q, n2 = self.phi, self.preactivation_variance(p), self.read_variance(p)
        share = self.sigma_1**2 * n2 / np.maximum(q, 1e-300)
        # Through the size as well, h·δ_h is φ·g by Euler's identity.
        own = phi.second_moment(q) if isinstance(phi, Relative) and phi.through_scale else phi.input_slope_moment(q)
        along = share**2 * own + share * (1.0 - share) * q * phi.slope_moment(1, q)
        if self.sigma_up is not None:
            along = along + 2.0 * share * q * phi.second_moment_slope(q) + phi.second_moment(q)
        return np.asarray(self.up_variance(p) * along / np.maximum(n2, 1e-300))

    def branch_pair(self, n_a: Array, n_b: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        hidden = max(1, round(self.expansion * n_a.shape[1]))
        g_a, g_b, g_ab = ((x * y).mean(1) for x, y in ((n_a, n_a), (n_b, n_b), (n_a, n_b)))
        s2, b2 = self.sigma_1**2, self.sigma_b1**2
        h_a, h_b = draw_pair(s2 * g_a + b2, s2 * g_b + b2, s2 * g_ab + b2, hidden, rng)
        a, b = on_units(self.phi, h_a), on_units(self.phi, h_b)
        if self.sigma_up is not None:
            up = self.sigma_up**2
            u_a, u_b = draw_pair(up * g_a, up * g_b, up * g_ab, hidden, rng)
            a, b = a * u_a, b * u_b
        v_a, v_b, c = (self.sigma_2**2 * (x * y).mean(1) + self.sigma_b2**2 for x, y in ((a, a), (b, b), (a, b)))
        return v_a, v_b, c
