"""Every fixed point of the variance map V on (0, ∞) and of the correlation map R on [−1, 1], with its stability.

V(q)/q is smooth in log q, on the scale of one octave around each kink, so a fine logarithmic grid brackets every
crossing; tangencies, where V touches the diagonal without crossing (shifted ReLU and soft threshold on the Edge of
Chaos), are found as extrema that reach zero.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from hush.theory._bracketed_root import bracketed_root
from hush.theory._gaussian import Array
from hush.theory.activation import PiecewiseLinear
from hush.theory.maps import (
    correlation_map,
    correlation_map_and_slope,
    correlation_map_slope,
    variance_map,
    variance_map_curvature,
    variance_map_slope,
)

__all__ = ["FixedPoint", "FixedPoints", "Stability", "correlation_fixed_points", "variance_fixed_points"]

# A slope within this of 1 counts as 1, and an extremum of V(q)/q − 1 within this of 0 as a touch.
_TOUCH = 1e-9
_PER_DECADE = 48


class Stability(Enum):
    """What happens to a value that starts near the fixed point."""

    STABLE = "stable"
    UNSTABLE = "unstable"
    STABLE_FROM_BELOW = "stable from below only"
    STABLE_FROM_ABOVE = "stable from above only"
    NEUTRAL = "neutral"


@dataclass(frozen=True)
class FixedPoint:
    """A value the map leaves where it is; slope and curvature are those of the map there."""

    value: float
    slope: float
    curvature: float | None
    stability: Stability

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.stability.value}, slope {self.slope:.3g})"


@dataclass(frozen=True)
class FixedPoints:
    """All fixed points of a map, in increasing order; `continuum` when every value in the range is one."""

    variable: str
    points: tuple[FixedPoint, ...]
    continuum: bool = False

    def __iter__(self) -> Iterator[FixedPoint]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> FixedPoint:
        return self.points[index]

    @property
    def stable(self) -> tuple[FixedPoint, ...]:
        return tuple(point for point in self.points if point.stability is Stability.STABLE)

    def near(self, value: float, tolerance: float = 1e-6) -> FixedPoint | None:
        """The fixed point within a relative `tolerance` of `value`, if there is one."""
        close = [p for p in self.points if abs(p.value - value) <= tolerance * max(abs(value), 1e-300)]
        return min(close, key=lambda p: abs(p.value - value), default=None)

    def __str__(self) -> str:
        if self.continuum:
            return f"every {self.variable} is a fixed point"
        if not self.points:
            return f"no fixed point {self.variable}"
        return f"{self.variable} = " + "; ".join(str(point) for point in self.points)


@lru_cache(maxsize=4)
def variance_fixed_points(phi: PiecewiseLinear, sigma_w: float, sigma_b: float) -> FixedPoints:
    """All q > 0 with V(q) = q, each with V′, V″ and its stability.

    At V′(q*) = 1 the curvature decides: V″ > 0 (the paper's central finding for ReLU_τ and ST_τ) makes q* stable
    from below only. When φ(ax) = aφ(x) and V(q) = q identically (ReLU at its Edge of Chaos), the answer is a
    continuum.
    """

    def point(q: float) -> FixedPoint:
        slope = variance_map_slope(phi, q, sigma_w)
        curvature = variance_map_curvature(phi, q, sigma_w)
        return FixedPoint(q, slope, curvature, _stability(slope, lambda side: excess(q * (1.0 + side * 1e-3))))

    def excess(q: Any) -> Any:
        return variance_map(phi, q, sigma_w, sigma_b) / q - 1.0

    def excess_slope(q: Any) -> Any:
        """d/dq (V/q − 1), times q²."""
        return q * variance_map_slope(phi, q, sigma_w) - variance_map(phi, q, sigma_w, sigma_b)

    if phi.is_homogeneous:
        # V(q) = gain·q + σ_b²
        gain = variance_map_slope(phi, 1.0, sigma_w)
        if sigma_b == 0.0:
            return FixedPoints("q", (), continuum=abs(gain - 1.0) <= _TOUCH)
        return FixedPoints("q", (point(sigma_b**2 / (1.0 - gain)),) if gain < 1.0 - _TOUCH else ())

    low, high = _range(phi, sigma_w, sigma_b)
    grid = np.geomspace(low, high, int(_PER_DECADE * np.log10(high / low)) + 2)
    roots = _roots(excess, excess_slope, grid, excess(grid), excess_slope(grid))
    return FixedPoints("q", tuple(point(q) for q in roots))


@lru_cache(maxsize=4)
def correlation_fixed_points(phi: PiecewiseLinear, q_star: float, sigma_w: float, sigma_b: float) -> FixedPoints:
    """All ρ in [−1, 1] with R(ρ) = ρ, each with R′ and its stability; ρ = 1 is always one of them.

    q* must be a fixed point of V.
    """
    v = variance_map(phi, q_star, sigma_w, sigma_b)
    if abs(v - q_star) > 1e-6 * q_star:
        raise ValueError(f"q_star = {q_star} is no fixed point of the variance map: V(q_star) = {v:.6g}.")

    def excess(rho: Any) -> Any:
        # R(1) − 1 is rounding; take it out so that it makes no roots beside ρ = 1.
        return correlation_map(phi, rho, q_star, sigma_w, sigma_b) - rho - at_one

    def excess_slope(rho: Any) -> Any:
        return correlation_map_slope(phi, rho, q_star, sigma_w) - 1.0

    at_one = v / q_star - 1.0
    # Fine near both ends, where R(ρ) − ρ vanishes like (1 − ρ)^{3/2} on the Edge of Chaos. Between them R is a power
    # series with coefficients ≥ 0, so it crosses the diagonal at most once on either side of 0.
    fine = np.geomspace(1e-5, 1.0, 40)
    grid = np.concatenate([-1.0 + fine[:-1] ** 2, 1.0 - fine[::-1] ** 2])
    images, slopes = correlation_map_and_slope(phi, grid, q_star, sigma_w, sigma_b)
    values = images - grid - at_one
    if np.all(abs(values) <= _TOUCH):
        return FixedPoints("ρ", (), continuum=True)
    roots = [rho for rho in _roots(excess, excess_slope, grid, values, slopes - 1.0) if rho < 1.0 - 1e-8]
    if abs(excess(-1.0)) <= 1e-12 and not any(abs(rho + 1.0) < 1e-8 for rho in roots):
        roots.insert(0, -1.0)

    def point(rho: float) -> FixedPoint:
        slope = correlation_map_slope(phi, rho, q_star, sigma_w)
        return FixedPoint(rho, slope, None, _stability(slope, lambda side: beside(rho + side * 1e-4)))

    def beside(rho: float) -> float:
        # Nothing lies beyond ±1, so there the fixed point is stable on the far side.
        return excess(rho) if abs(rho) <= 1.0 else -rho

    return FixedPoints("ρ", (*(point(rho) for rho in roots), point(1.0)))


def _stability(slope: float, excess: Callable[[float], float]) -> Stability:
    """From the slope, and where that is 1 from the sign of map − identity at −1 (just below) and +1 (just above)."""
    if abs(slope) < 1.0 - _TOUCH:
        return Stability.STABLE
    if abs(slope) > 1.0 + _TOUCH:
        return Stability.UNSTABLE
    below, above = excess(-1.0) > 0.0, excess(1.0) < 0.0
    if below and above:
        return Stability.STABLE
    if below:
        return Stability.STABLE_FROM_BELOW
    return Stability.STABLE_FROM_ABOVE if above else Stability.UNSTABLE


def _range(phi: PiecewiseLinear, sigma_w: float, sigma_b: float) -> tuple[float, float]:
    """Where fixed points can be: from where the nearest kink is 8σ away to where all kinks look like zero.

    Below, V is affine to rounding, V = s q + V(0), and its own fixed point V(0)/(1 − s) is included.
    """
    kinks = [abs(kink) for kink in phi.kinks if kink]
    low, high = (min(kinks) / 8.0) ** 2, (1e4 * max(kinks)) ** 2
    start = variance_map(phi, 0.0, sigma_w, sigma_b)
    local_slope = variance_map_slope(phi, 0.0, sigma_w)
    if start > 0.0:
        affine = start / max(1.0 - local_slope, 1e-6) if np.isfinite(local_slope) else start
        low, high = min(low, 0.25 * start, 0.25 * affine), max(high, 1e8 * start)
    bound = phi.bound()
    return low, high if np.isinf(bound) else max(high, 4.0 * (sigma_w * bound) ** 2)


def _roots(
    excess: Callable[[Any], Any], excess_slope: Callable[[Any], Any], grid: Array, values: Array, slopes: Array
) -> list[float]:
    """Zeros of `excess`, with these values and slopes on the grid: crossings, and extrema that touch zero."""
    roots = []
    # Extrema first: a touch may show up as no crossing, or as two spurious ones a rounding error apart.
    for i in np.flatnonzero(np.sign(slopes[:-1]) * np.sign(slopes[1:]) < 0.0):
        nearest = min(values[i : i + 2], key=abs)
        if np.sign(slopes[i]) * nearest > _TOUCH and values[i] * values[i + 1] > 0.0:
            # A maximum above zero or a minimum below it.
            continue
        extremum = bracketed_root(excess_slope, grid[i], grid[i + 1], xtol=1e-15 * abs(grid[i]) + 1e-300, rtol=1e-14)
        height = excess(extremum)
        if abs(height) <= 1e-12:
            roots.append(extremum)
        elif np.sign(height) != np.sign(values[i]) and np.sign(height) != np.sign(values[i + 1]):
            # The curve dips through zero and back inside one cell.
            roots += [_solve(excess, grid[i], extremum), _solve(excess, extremum, grid[i + 1])]
    touched = np.array(roots)
    for i in np.flatnonzero(np.sign(values[:-1]) * np.sign(values[1:]) <= 0.0):
        if touched.size and np.any((touched >= grid[i] * 0.999) & (touched <= grid[i + 1] * 1.001)):
            continue
        if values[i] == 0.0:
            roots.append(float(grid[i]))
        elif values[i + 1] != 0.0:
            roots.append(_solve(excess, grid[i], grid[i + 1]))
    if values[-1] == 0.0:
        roots.append(float(grid[-1]))
    return sorted(roots)


def _solve(excess: Callable[[Any], Any], low: float, high: float) -> float:
    return float(bracketed_root(excess, low, high, xtol=1e-15 * max(abs(low), abs(high)), rtol=1e-14))
