"""E[φ(u₁)φ(u₂)] for correlated Gaussians, by Price's theorem: single integrals, exact up to |ρ| = 1.

Let x and y be the kinks of φ in units of √q_a and √q_b, and c(ρ) = E[φ(u₁)φ(u₂)]. Price's theorem gives

    c′(ρ) = √(q_a q_b) E[φ′(u₁) φ′(u₂)]

so that, φ′ being constant on segments S with slopes α_S, c″ is a sum over pairs of segments of α_S α_T times the
mixed difference of the bivariate density over the corners of S × T, and

    c(ρ) = E φ(u₁) E φ(u₂) + ρ √(q_a q_b) E φ′(u₁) E φ′(u₂) + ∫₀^ρ (ρ − t) c″(t) dt.

With t = cos δ the factor 1/√(1 − t²) of the density is absorbed and the integrand is smooth at ρ = 1. Its only fine
structure sits near δ = 0, at the scale of the distances between kinks, so the panels shrink geometrically towards
the end of the range. A jump of φ puts a point mass into φ′; it adds two terms to c′.

A φ that is silent on the whole negative side has c = c′ = 0 at ρ = −1, and c(ρ) ≪ c(0) as ρ nears it. There the
integral runs from −1 instead, c(ρ) = ∫_{−1}^ρ (ρ − t) c″(t) dt, and keeps its relative precision.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from hush.theory._arrays import Array, Mask, offender
from hush.theory._gaussian import density

if TYPE_CHECKING:
    from hush.theory.activations.piecewise import PiecewiseLinear

# How many (point, node) pairs are held in memory at a time.
_CHUNK = 1 << 20

_Quantity = Callable[["PiecewiseLinear", "PiecewiseLinear", "_Arc", Array, Array, Array], Array]


def evaluate(
    phi: "PiecewiseLinear",
    rho: float | Array,
    q_a: float | Array,
    q_b: float | Array,
    quantities: tuple[_Quantity, ...],
) -> list[float | Array]:
    """`cross_value` for c(ρ), `cross_slope` for c′(ρ), or both: elementwise over broadcast ρ, q_a, q_b."""
    rho, q_a, q_b = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (rho, q_a, q_b)))
    if not np.all(abs(rho) <= 1.0):
        raise ValueError(f"a correlation must lie in [−1, 1], got {offender(rho, abs(rho) <= 1.0)}.")
    for q in (q_a, q_b):
        good = (q > 0.0) & np.isfinite(q)
        if not np.all(good):
            raise ValueError(f"the variances must be positive and finite, got {offender(q, good)}.")
    results = [np.empty(rho.shape) for _ in quantities]
    # E[φ(u₁)φ(u₂)] at −ρ is E[φ(u₁)φ(−u₂)] at ρ, and its derivative changes sign.
    signs = [-1.0 if quantity is cross_slope else 1.0 for quantity in quantities]
    silent = _lowest_active(phi, with_values=cross_value in quantities)
    positive, far = rho >= 0.0, _is_far_from_zero(silent, rho, q_a, q_b)
    for chosen, psi, factors, from_one in (
        (positive, phi, [1.0] * len(quantities), False),
        (~positive & ~far, phi.reflected(), signs, False),
        (far, phi.reflected(), signs, True),
    ):
        if chosen.any():
            points = abs(rho[chosen]), q_a[chosen], q_b[chosen]
            found = _in_chunks(quantities, phi, psi, *points, from_one=from_one)
            for result, factor, values in zip(results, factors, found, strict=True):
                result[chosen] = factor * values
    return [float(result) if result.ndim == 0 else result for result in results]


def _lowest_active(phi: "PiecewiseLinear", *, with_values: bool) -> float | None:
    """Where φ′ (and φ, with_values) first leaves 0, if that is not below 0."""
    for left, _, slope, offset in phi.segments():
        if slope or (with_values and offset):
            return left if left >= 0.0 else None
    return None


def _is_far_from_zero(kink: float | None, rho: Array, q_a: Array, q_b: Array) -> Mask:
    """Where all is silent below `kink` ≥ 0 and ρ is so negative that c(ρ) ≪ c(0).

    c(ρ)/c(0) falls off like e^{−D} with D the rise of −log density at (κ, κ) between correlations 0 and ρ.
    """
    if kink is None:
        return np.zeros(rho.shape, dtype=bool)
    x, y = kink / np.sqrt(q_a), kink / np.sqrt(q_b)
    rise = (rho**2 * (x * x + y * y) - 2.0 * x * y * rho) / np.maximum(2.0 * (1.0 - rho**2), 1e-300)
    return (rho < 0.0) & (rise > 1.0)


def _in_chunks(
    quantities: tuple[_Quantity, ...],
    phi: "PiecewiseLinear",
    psi: "PiecewiseLinear",
    rho: Array,
    q_a: Array,
    q_b: Array,
    *,
    from_one: bool,
) -> Array:
    """One row for each quantity."""
    x, y = np.sqrt(q_a), np.sqrt(q_b)
    nodes, weights = _panels(phi, psi, x, y, both_ends=from_one)
    step = max(1, _CHUNK // len(nodes))
    parts = []
    for start in range(0, len(rho), step):
        part = slice(start, start + step)
        arc, here = _Arc(rho[part][:, None], nodes, weights, from_one), (x[part][:, None], y[part][:, None])
        pairs = _segment_pairs(phi, psi, arc, *here)
        parts.append(np.stack([quantity(phi, psi, arc, pairs, *here) for quantity in quantities]))
    return np.concatenate(parts, axis=1)


class _Arc:
    """The path t = cos δ from t = ρ (δ₀ = arccos ρ) to t = 0, or to t = 1, at the quadrature nodes; shapes (M, K)."""

    def __init__(self, rho: Array, nodes: Array, weights: Array, from_one: bool) -> None:
        start = 2.0 * np.arcsin(np.sqrt(0.5 * (1.0 - rho)))  # arccos ρ, exact near ρ = 1
        length = start if from_one else np.arcsin(rho)
        delta = start * (1.0 - nodes) if from_one else start + length * nodes
        self.rho = rho
        self.from_one = from_one
        self.weights = length * weights
        # |ρ − cos δ|, without the difference
        self.lever = 2.0 * np.sin(0.5 * (delta + start)) * np.sin(0.5 * length * nodes)
        self._set(delta)

    def _set(self, delta: Array) -> None:
        self.sine = np.sin(delta)
        self.half = 1.0 / (1.0 + np.cos(delta))
        self.tangent = np.tan(0.5 * delta)
        # Far enough from 0 that its inverse square is finite.
        self.inverse_square = 0.5 / np.maximum(self.sine, 1e-140) ** 2

    def end(self) -> "_Arc":
        """The single point t = ρ."""
        arc = object.__new__(_Arc)
        arc._set(2.0 * np.arcsin(np.sqrt(0.5 * (1.0 - self.rho))))
        return arc

    def log_density(self, x: Array, y: Array) -> Array:
        """−(x² − 2xyt + y²)/(2(1 − t²)), written so that nothing cancels as t → 1."""
        gap = np.clip(x - y, -1e150, 1e150)
        return -(gap * gap) * self.inverse_square - x * y * self.half


def _panels(phi: "PiecewiseLinear", psi: "PiecewiseLinear", x: Array, y: Array, both_ends: bool) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and weights on [0, 1], on panels that shrink towards 0, or towards both ends.

    How far they shrink follows the smallest distance between a kink of φ and one of ψ; how many nodes a panel
    has, the largest kink, because far out the density is a narrow ridge.
    """
    distances, largest = [], 0.0
    for kink in phi.kinks:
        for other in psi.kinks:
            gap = abs(kink / x - other / y)
            gap = gap[gap > 1e-14 * abs(kink / x)]
            distances.append(gap.min(initial=np.inf))
            largest = max(largest, min(40.0, float(abs(kink / x).max())), min(40.0, float(abs(other / y).max())))
    smallest = min(distances, default=np.inf)
    levels = int(np.clip(np.ceil(np.log2(4.0 / max(smallest, 1e-13))), 2, 46)) if np.isfinite(smallest) else 2
    if both_ends:
        # Towards ρ the density may fall e-fold within 1e-4; towards 1 its scale is that of the distances.
        levels = max(levels, 12)
    edges = np.concatenate([[0.0], 0.5 ** np.arange(levels, -1, -1)])
    if both_ends:
        edges = np.concatenate([0.5 * edges, 1.0 - 0.5 * edges[-2::-1]])
    base, weight = _gauss(16 + int(np.ceil(largest)))
    widths = np.diff(edges)[:, None]
    nodes = edges[:-1, None] + 0.5 * widths * (base + 1.0)
    return nodes.ravel(), (0.5 * widths * weight).ravel()


@lru_cache
def _gauss(count: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(count)


def cross_value(phi: "PiecewiseLinear", psi: "PiecewiseLinear", arc: _Arc, pairs: Array, x: Array, y: Array) -> Array:
    integrand = x * y * arc.lever * pairs
    if not (phi.is_continuous and psi.is_continuous):
        jumps = _jump_pairs(phi, psi, arc, x, y) + arc.sine * _segment_jump_pairs(phi, psi, arc, x, y)
        integrand = integrand + (-jumps if arc.from_one else jumps)
    total: Array = (arc.weights * integrand).sum(-1)
    if arc.from_one:
        return total
    start: Array = phi.mean(x**2) * psi.mean(y**2) + arc.rho * _slope_at_zero(phi, psi, x, y)
    return total + start[:, 0]


def cross_slope(phi: "PiecewiseLinear", psi: "PiecewiseLinear", arc: _Arc, pairs: Array, x: Array, y: Array) -> Array:
    total: Array = (arc.weights * x * y * pairs).sum(-1)
    total = -total if arc.from_one else total + _slope_at_zero(phi, psi, x, y)[:, 0]
    if not (phi.is_continuous and psi.is_continuous):
        end = arc.end()
        masses = _jump_pairs(phi, psi, end, x, y)[:, 0]
        sine = end.sine[:, 0]
        meeting = np.where(masses == 0.0, 0.0, np.copysign(np.inf, masses))
        total = total + np.where(sine > 0.0, masses / np.where(sine > 0.0, sine, 1.0), meeting)
        total = total + _segment_jump_pairs(phi, psi, end, x, y)[:, 0]
    return total


def _slope_at_zero(phi: "PiecewiseLinear", psi: "PiecewiseLinear", x: Array, y: Array) -> Array:
    """√(q_a q_b) E φ′ E φ′, jumps left out."""
    return x * y * phi.mean_slope(x**2) * psi.mean_slope(y**2)


def _segment_pairs(phi: "PiecewiseLinear", psi: "PiecewiseLinear", arc: _Arc, x: Array, y: Array) -> Array:
    """Σ α_S α_T × the mixed difference of exp(log_density)/2π over the corners of S × T."""
    total = np.zeros(np.broadcast_shapes(arc.sine.shape, x.shape, y.shape))
    # Of two odd activations −S × −T adds the same as S × T.
    odd = phi.is_odd and psi.is_odd
    for left_a, right_a, slope_a, _ in phi.segments():
        if odd and right_a <= 0.0:
            continue
        if odd and left_a >= 0.0:
            slope_a *= 2.0
        for left_b, right_b, slope_b, _ in psi.segments():
            if slope_a and slope_b:
                corner = _mixed_difference(arc, (left_a / x, right_a / x), (left_b / y, right_b / y),
                                           (right_a - left_a) / x, (right_b - left_b) / y)  # fmt: skip
                total = total + slope_a * slope_b / (2.0 * np.pi) * corner
    return total


def _mixed_difference(
    arc: _Arc, x: tuple[Array, Array], y: tuple[Array, Array], width_x: Array, width_y: Array
) -> Array:
    """F(x₁,y₁) − F(x₁,y₂) − F(x₂,y₁) + F(x₂,y₂), F = exp(log_density); 0 at infinite ends."""
    x_ends = [(end, sign) for end, sign in zip(x, (1.0, -1.0), strict=True) if np.isfinite(end).all()]
    y_ends = [(end, sign) for end, sign in zip(y, (1.0, -1.0), strict=True) if np.isfinite(end).all()]
    if not x_ends or not y_ends:
        return np.zeros(1)
    if len(x_ends) == 1:
        return x_ends[0][1] * _difference(arc, x_ends[0][0], y_ends, width_y)
    if len(y_ends) == 1:
        return y_ends[0][1] * _difference(arc, y_ends[0][0], x_ends, width_x)
    # With A the logarithm at (x₁, y₁), b and c what it gains to (x₁, y₂) and (x₂, y₁), and ε the rest to (x₂, y₂):
    #   e^A (e^b − 1)(e^c − 1) + e^{A+b+c} (e^ε − 1),   ε = t w_x w_y/(1 − t²) ≥ 0.
    (x1, x2), (y1, y2) = x, y
    base = arc.log_density(x1, y1)
    b = width_y * (((x1 - y1) + (x1 - y2)) * arc.inverse_square - x1 * arc.half)
    c = width_x * (((y1 - x1) + (y1 - x2)) * arc.inverse_square - y1 * arc.half)
    opposite = arc.log_density(x2, y2)
    cosine = 1.0 / arc.half - 1.0
    epsilon = 2.0 * arc.inverse_square * cosine * width_x * width_y
    # A + max(b, 0) + max(c, 0) without the sum: at most 0, whatever the size of b and c.
    largest = np.where(
        b > 0.0,
        np.where(c > 0.0, opposite - epsilon, arc.log_density(x1, y2)),
        np.where(c > 0.0, arc.log_density(x2, y1), base),
    )
    first = np.sign(b) * np.sign(c) * np.exp(largest) * np.expm1(-abs(b)) * np.expm1(-abs(c))
    return np.asarray(first - np.exp(opposite) * np.expm1(-epsilon))


def _difference(arc: _Arc, x: Array, ends: list[tuple[Array, float]], width: Array) -> Array:
    """Σ sign·F(x, y) over one or two ends y."""
    if len(ends) == 1:
        return ends[0][1] * np.exp(arc.log_density(x, ends[0][0]))
    y1, y2 = ends[0][0], ends[1][0]
    gain = width * (((x - y1) + (x - y2)) * arc.inverse_square - x * arc.half)
    largest = np.where(gain > 0.0, arc.log_density(x, y2), arc.log_density(x, y1))
    return np.sign(gain) * np.exp(largest) * np.expm1(-abs(gain))


def _jump_pairs(phi: "PiecewiseLinear", psi: "PiecewiseLinear", arc: _Arc, x: Array, y: Array) -> Array:
    """Σ H_i H_j F(x_i, y_j)/2π over the jumps: what they add to c′(t) dt per dδ."""
    total = np.zeros(arc.sine.shape)
    for kink_a, jump_a in zip(phi.kinks, phi.jumps, strict=True):
        for kink_b, jump_b in zip(psi.kinks, psi.jumps, strict=True):
            if jump_a and jump_b:
                total = total + jump_a * jump_b / (2.0 * np.pi) * np.exp(arc.log_density(kink_a / x, kink_b / y))
    return total


def _segment_jump_pairs(phi: "PiecewiseLinear", psi: "PiecewiseLinear", arc: _Arc, x: Array, y: Array) -> Array:
    """Σ √q α_S H_j n(y_j) P(u₁ in S | u₂ = κ_j), and the same with the roles exchanged."""
    total = np.zeros(arc.sine.shape)
    for one, other, scale, other_scale in ((phi, psi, x, y), (psi, phi, y, x)):
        for kink, jump in zip(other.kinks, other.jumps, strict=True):
            if not jump:
                continue
            at = kink / other_scale
            for left, right, slope, _ in one.segments():
                if slope:
                    low, high = _conditional(arc, left / scale, at), _conditional(arc, right / scale, at)
                    # The smaller tails, so that the difference keeps its digits on either side.
                    share = np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
                    total = total + scale * slope * jump * density(at) * share
    return total


def _conditional(arc: _Arc, edge: Array, given: Array) -> Array:
    """(edge − t·given)/√(1 − t²): the edge in units of the conditional standard deviation."""
    gap = edge - given
    # A gap of 0 stays 0 at δ = 0, where only the tangent counts.
    return np.where(gap == 0.0, 0.0, gap / np.maximum(arc.sine, 1e-140)) + given * arc.tangent
