"""The Edge of Chaos: τ from a sparsity, (σ_w, σ_b) from q*, m from V′(q*), the phase of any (σ_w, σ_b).

On the Edge of Chaos χ₁ = 1 and V(q*) = q*: a gradient keeps its size from layer to layer, and so does the signal.
"""

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from hush.theory._bracketed_root import bracketed_root
from hush.theory._gaussian import Array, interval_moments
from hush.theory._piece import curvature_share, slope_share
from hush.theory.activation import PiecewiseLinear
from hush.theory.fixed_points import FixedPoint, correlation_fixed_points, variance_fixed_points
from hush.theory.maps import chi_1, correlation_map_slope
from hush.theory.named import crelu, cst, shifted_relu, soft_threshold

__all__ = [
    "ACTIVATIONS",
    "CLIPPED",
    "Phase",
    "Regime",
    "activation",
    "clip_from_slope",
    "edge_curve",
    "edge_of_chaos",
    "phase",
    "phase_diagram",
    "slope_and_curvature_of_clip",
    "threshold_from_sparsity",
]

ACTIVATIONS = ("shifted_relu", "soft_threshold", "crelu", "cst")
CLIPPED = ("crelu", "cst")
_TWO_SIDED = ("soft_threshold", "cst")
_EDGE = 1e-6


def activation(name: str, threshold: float, clip: float | None = None) -> PiecewiseLinear:
    """The paper's activation `name` at τ = threshold and, for the clipped two, m = clip."""
    _check_name(name)
    if name in CLIPPED:
        if clip is None:
            raise ValueError(f"{name} needs a clip.")
        return (crelu if name == "crelu" else cst)(threshold, clip)
    if clip is not None and not math.isinf(clip):
        raise ValueError(f"{name} has no clip, got clip = {clip}; the clipped twin is {_clipped_twin(name)}.")
    return (shifted_relu if name == "shifted_relu" else soft_threshold)(threshold)


def threshold_from_sparsity(name: str, sparsity: float, q_star: float = 1.0) -> float:
    """τ̂(s, q*) = √q* Φ⁻¹(s), or √q* Φ⁻¹((1 + s)/2) for the odd activations (paper, eqs. 57 and 58)."""
    _check_name(name)
    check_positive("q_star", q_star)
    lowest = 0.0 if name in _TWO_SIDED else 0.5
    if not lowest <= sparsity < 1.0:
        raise ValueError(f"the sparsity of {name} lies in [{lowest:g}, 1), got {sparsity}.")
    # Of s near 1 the complement is what counts: Φ⁻¹(s) = −Φ⁻¹(1 − s).
    tail = (1.0 - sparsity) / (2.0 if name in _TWO_SIDED else 1.0)
    return max(0.0, float(-math.sqrt(q_star) * ndtri(tail)))


def edge_of_chaos(phi: PiecewiseLinear, q_star: float) -> tuple[float, float]:
    """(σ_w², σ_b²) with χ₁ = 1 and V(q*) = q*: σ_w² = 1/E[φ′²], σ_b² = q* − σ_w² E[φ²] (paper, appendix A).

    Raises:
        ValueError: if φ is flat almost everywhere at q*, or if E[φ²] > q* E[φ′²]: then no σ_b² ≥ 0 exists.
    """
    check_positive("q_star", q_star)
    slope, square = phi.slope_moment(1, q_star), phi.second_moment(q_star)
    if slope == 0.0:
        raise ValueError(f"{phi.name} has E[φ′²] = 0 at q* = {q_star:g}: no σ_w brings χ₁ to 1.")
    variance_w = 1.0 / slope
    variance_b = q_star - variance_w * square
    if variance_b < -1e-12 * q_star:
        raise ValueError(
            f"{phi.name} has no Edge of Chaos at q* = {q_star:g}: χ₁ = 1 needs σ_w² = {variance_w:.6g}, and then "
            f"σ_w² E[φ²] = {variance_w * square:.6g} exceeds q*, so σ_b² would be {variance_b:.3g} < 0."
        )
    return variance_w, max(0.0, variance_b)


@lru_cache(maxsize=256)
def clip_from_slope(name: str, threshold: float, v_prime: float, q_star: float = 1.0) -> float:
    """m such that V′(q*) = v_prime on the Edge of Chaos; V′ rises with m from 0 to 1 (paper, Figure 3)."""
    if name not in CLIPPED:
        raise ValueError(f"only {' and '.join(CLIPPED)} have a clip, got {name!r}.")
    if not 0.0 < v_prime < 1.0:
        raise ValueError(f"V′(q*) of a clipped activation lies strictly between 0 and 1, got {v_prime}.")
    check_positive("q_star", q_star)
    unit, tau = math.sqrt(q_star), threshold / math.sqrt(q_star)

    def gap(log_m: float) -> float:
        return float(_slope_on_edge(tau, np.array([math.exp(log_m)]))[0]) - v_prime

    # V′ falls to 0 like m and tends to 1 like e^{−(τ+m)²/2}.
    return unit * math.exp(bracketed_root(gap, math.log(1e-9 * max(1.0, tau)), math.log(40.0), xtol=1e-14, rtol=1e-14))


def slope_and_curvature_of_clip(name: str, threshold: float, clip: ArrayLike, q_star: float = 1.0) -> Any:
    """(V′(q*), V″(q*)) on the Edge of Chaos at each clip m: the curves of the paper's Figure 3."""
    clips = np.asarray(clip, dtype=np.float64)
    for m in clips.ravel():
        activation(name, threshold, float(m))  # says what is wrong
    check_positive("q_star", q_star)
    ends = threshold / math.sqrt(q_star), clips.ravel() / math.sqrt(q_star)
    slopes, curvatures = _slope_on_edge(*ends).reshape(clips.shape), _curvature_on_edge(*ends).reshape(clips.shape)
    return (float(slopes), float(curvatures) / q_star) if clips.ndim == 0 else (slopes, curvatures / q_star)


# V′ and V″ on the Edge of Chaos at q* = 1 are means over the sloped piece, from τ to τ + m; CST's two are alike.


def _slope_on_edge(threshold: float, clips: Array) -> Array:
    start = np.full(clips.shape, threshold)
    moments = interval_moments(start, start + clips, clips, 2)
    if not moments[0].all():
        raise ValueError(f"E[φ′²] = 0 at a threshold of {threshold:g} √q*: no σ_w brings χ₁ to 1.")
    return slope_share(start, np.zeros(clips.shape), moments) / moments[0]


def _curvature_on_edge(threshold: float, clips: Array) -> Array:
    start = np.full(clips.shape, threshold)
    mass = interval_moments(start, start + clips, clips, 0)[0]
    return 0.5 * curvature_share(start, start + clips, clips, np.zeros(clips.shape)) / mass


def edge_curve(phi: PiecewiseLinear, q_star: ArrayLike) -> tuple[Array, Array]:
    """(σ_w, σ_b) along the Edge of Chaos over q*; NaN where there is none (paper, Figure 8)."""
    q = np.asarray(q_star, dtype=np.float64)
    if not np.all(q > 0.0):
        raise ValueError(f"q_star must be positive, got {float(q.min())}.")
    slope, square = np.asarray(phi.slope_moment(1, q)), np.asarray(phi.second_moment(q))
    variance_w = np.divide(1.0, slope, out=np.full(q.shape, np.nan), where=slope > 0.0)
    variance_b = q - variance_w * square
    variance_b = np.where(abs(variance_b) <= 1e-12 * q, 0.0, variance_b)
    exists = variance_b >= 0.0
    return np.sqrt(np.where(exists, variance_w, np.nan)), np.sqrt(np.where(exists, variance_b, np.nan))


class Regime(Enum):
    """Ordered: nearby inputs merge and gradients vanish. Chaotic: they part and gradients explode."""

    ORDERED = "ordered"
    EDGE = "edge of chaos"
    CHAOTIC = "chaotic"
    DIVERGENT = "divergent"


@dataclass(frozen=True)
class Phase:
    """The phase of a network at (σ_w, σ_b), with the depths over which it forgets.

    `gradient_depth` is 1/|log χ₁|, the number of layers over which a gradient changes by a factor e;
    `correlation_depth` is 1/|log R′(ρ*)| at the attracting correlation. Both are ∞ on the Edge of Chaos.
    In the divergent regime no q attracts: q, and with it everything else, runs away.
    """

    regime: Regime
    q_star: float | None
    chi1: float | None
    gradient_depth: float | None
    correlation_depth: float | None

    def __str__(self) -> str:
        if self.q_star is None or self.chi1 is None:
            return f"{self.regime.value}: the variance map has no fixed point that attracts q"
        return f"{self.regime.value}: q* = {self.q_star:.4g}, χ₁ = {self.chi1:.4g}"


def phase(phi: PiecewiseLinear, sigma_w: float, sigma_b: float, q_start: float = 1.0) -> Phase:
    """The phase at the fixed point that q reaches from q_start (for ReLU at σ_b = 0, where all are fixed, q_start)."""
    check_positive("q_start", q_start)
    points = variance_fixed_points(phi, sigma_w, sigma_b)
    if points.continuum:
        q = q_start
    else:
        reached = _attractor(phi, sigma_w, sigma_b, points.points, q_start)
        if reached is None:
            return Phase(Regime.DIVERGENT, None, None, None, None)
        q = reached
    if q == 0.0:
        # Everything dies out: the gain of an infinitesimal signal.
        chi = chi_1(phi, 0.0, sigma_w)
        return Phase(Regime.ORDERED, 0.0, chi, _depth(chi), _depth(chi))
    chi = chi_1(phi, q, sigma_w)
    regime = Regime.EDGE if abs(chi - 1.0) <= _EDGE else Regime.CHAOTIC if chi > 1.0 else Regime.ORDERED
    slope = chi
    if regime is Regime.CHAOTIC:
        stable = correlation_fixed_points(phi, q, sigma_w, sigma_b).stable
        slope = correlation_map_slope(phi, stable[-1].value, q, sigma_w) if stable else chi
    return Phase(regime, q, chi, _depth(chi), _depth(slope))


def phase_diagram(phi: PiecewiseLinear, sigma_w: ArrayLike, sigma_b: ArrayLike, q_start: float = 1.0) -> Array:
    """χ₁ at the variance reached from q_start, for each (σ_w, σ_b): shape (len(sigma_w), len(sigma_b)).

    Above 1 is chaotic, below 1 ordered; ∞ where the variance diverges.
    """
    widths, biases = np.asarray(sigma_w, dtype=np.float64), np.asarray(sigma_b, dtype=np.float64)
    check_positive("q_start", q_start)
    scale = max(q_start, *(kink**2 for kink in phi.kinks)) if phi.kinks else q_start
    up = np.geomspace(q_start, 1e10 * scale, 1200)
    down = np.geomspace(q_start, 1e-10 * q_start, 1200)
    square_up, square_down = phi.second_moment(up), phi.second_moment(down)
    start = phi.second_moment(q_start)
    low, high = np.empty((2, widths.size, biases.size))
    for i, w2 in enumerate(widths**2):
        # V(q) = q where q − σ_w² E[φ²] = σ_b²; from q_start upwards while V > q, downwards while V < q.
        rising = w2 * start + biases**2 > q_start
        first_up = np.searchsorted(np.maximum.accumulate(up - w2 * square_up), biases**2)
        first_down = np.searchsorted(-np.minimum.accumulate(down - w2 * square_down), -(biases**2))
        low[i] = np.where(rising, up[np.maximum(first_up - 1, 0)], np.append(down, 0.0)[first_down])
        high[i] = np.where(rising, np.append(up, np.inf)[first_up], down[np.maximum(first_down - 1, 0)])
    w2, b2 = np.repeat(widths**2, biases.size), np.tile(biases**2, widths.size)
    low, high = low.ravel(), high.ravel()
    chi = np.full(w2.shape, np.inf)
    bounded = np.isfinite(high)
    w2, b2, low, high = w2[bounded], b2[bounded], low[bounded], high[bounded]
    q = np.sqrt(np.maximum(low, 1e-300) * high)
    for _ in range(5):
        # Newton, kept inside the bracket.
        excess = w2 * phi.second_moment(q) + b2 - q
        steepness = 1.0 - w2 * phi.second_moment_slope(q)
        q = np.clip(q + excess / np.where(abs(steepness) > 1e-9, steepness, 1e-9), low, high)
    chi[bounded] = w2 * phi.slope_moment(1, q)
    return chi.reshape(widths.size, biases.size)


def _attractor(
    phi: PiecewiseLinear, sigma_w: float, sigma_b: float, points: tuple[FixedPoint, ...], q_start: float
) -> float | None:
    """The fixed point q_start flows to (V is monotone between them); 0 if q dies out, None if it diverges."""
    for point in points:
        if abs(q_start - point.value) <= 1e-9 * point.value:
            return point.value
    rising = sigma_w**2 * phi.second_moment(q_start) + sigma_b**2 > q_start
    if rising:
        above = [p for p in points if p.value > q_start]
        return above[0].value if above else None
    below = [p for p in points if p.value < q_start]
    return below[-1].value if below else 0.0


def _depth(factor: float) -> float:
    """1/|log factor|, ∞ at 1."""
    if factor <= 0.0 or math.isinf(factor):
        return 0.0
    return math.inf if abs(factor - 1.0) <= _EDGE else 1.0 / abs(math.log(factor))


def _check_name(name: str) -> None:
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}; hush designs {', '.join(ACTIVATIONS)}.")


def _clipped_twin(name: str) -> str:
    return "cst" if name == "soft_threshold" else "crelu"


def check_positive(name: str, value: float) -> None:
    """Raise a ValueError unless value is a positive finite number."""
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} must be positive and finite, got {value}.")
