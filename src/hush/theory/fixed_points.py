"""Every fixed point of the variance map V on (0, ∞) and of the correlation map R on [−1, 1], with its stability.

V(q)/q is smooth in log q, on the scale of one octave around each kink, so a fine logarithmic grid brackets every
crossing; tangencies, where V touches the diagonal without crossing (shifted ReLU and soft threshold on the Edge of
Chaos), are found as extrema that reach zero.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

from hush.theory._arrays import Array, Value
from hush.theory._root import find_root
from hush.theory.activations.protocol import Activation
from hush.theory.block.choose import block_from
from hush.theory.block.protocol import Block

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
    """All fixed points of a map, in increasing order; `continuum` when every value in the range is one.

    Where there is none, `why_none` may say why.
    """

    variable: str
    points: tuple[FixedPoint, ...]
    continuum: bool = False
    why_none: str = ""

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
            return f"no fixed point {self.variable}" + (f": {self.why_none}" if self.why_none else "")
        return f"{self.variable} = " + "; ".join(str(point) for point in self.points)


def variance_fixed_points(
    phi: Activation | Block, sigma_w: float | None = None, sigma_b: float | None = None
) -> FixedPoints:
    """All q > 0 with V(q) = q, each with V′, V″ and its stability; of φ at σ_w and σ_b, or of a block.

    At V′(q*) = 1 the curvature decides: V″ > 0 (the paper's central finding for ReLU_τ and ST_τ) makes q* stable
    from below only. When V(q) = q identically (ReLU at its Edge of Chaos), the answer is a continuum.
    """
    return _variance_fixed_points(block_from(phi, sigma_w, sigma_b))


# The design, its phase and the explorer ask for the same fixed points one after another.
@lru_cache(maxsize=4)
def _variance_fixed_points(block: Block) -> FixedPoints:
    def point(q: float) -> FixedPoint:
        slope, curvature = block.variance_slope(q), block.variance_curvature(q)
        return FixedPoint(q, slope, curvature, _stability(slope, lambda side: excess(q * (1.0 + side * 1e-3))))

    def excess(q: Value) -> Value:
        return block.variance(q) / q - 1.0

    def excess_slope(q: Value) -> Value:
        """d/dq (V/q − 1), times q²."""
        return q * block.variance_slope(q) - block.variance(q)

    if block.keeps_stream and block.reachable()[1] == np.inf:
        if block.variance(1.0) == 1.0 and block.variance_slope(1.0) == 1.0:
            return FixedPoints("p", (), continuum=True)
        return FixedPoints("p", (), why_none="every block adds to the residual stream, whose variance only grows")
    if not block.scales:
        # V(q) = gain·q + V(0), a straight line.
        gain, start = block.variance_slope(1.0), block.variance(0.0)
        if start == 0.0:
            return FixedPoints("q", (), continuum=abs(gain - 1.0) <= _TOUCH)
        return FixedPoints("q", (point(start / (1.0 - gain)),) if gain < 1.0 - _TOUCH else ())

    low, high = _range(block)
    grid = np.geomspace(low, high, int(_PER_DECADE * np.log10(high / low)) + 2)
    roots = _roots(excess, excess_slope, grid, excess(grid), excess_slope(grid))
    return FixedPoints("q", tuple(point(q) for q in roots))


def correlation_fixed_points(
    phi: Activation | Block, q_star: float, sigma_w: float | None = None, sigma_b: float | None = None
) -> FixedPoints:
    """All ρ in [−1, 1] with R(ρ) = ρ, each with R′ and its stability; ρ = 1 is always one of them.

    q* must be a fixed point of V.
    """
    return _correlation_fixed_points(block_from(phi, sigma_w, sigma_b), q_star)


@lru_cache(maxsize=4)
def _correlation_fixed_points(block: Block, q_star: float) -> FixedPoints:
    v = block.variance(q_star)
    if block.keeps_stream and not abs(v - q_star) <= 1e-6 * q_star:
        raise ValueError(
            f"the stream of this block goes from {q_star:g} to {v:.6g} and has no fixed point, so its correlation map "
            f"has none either; correlation_band follows the correlation block by block."
        )
    if not abs(v - q_star) <= 1e-6 * q_star:
        raise ValueError(f"q_star = {q_star} is no fixed point of the variance map: V(q_star) = {v:.6g}.")

    def excess(rho: float) -> float:
        # R(1) − 1 is rounding; take it out so that it makes no roots beside ρ = 1.
        return block.covariance(rho, q_star, q_star) / q_star - rho - at_one

    def slope_at(rho: float) -> float:
        return block.covariance_slope(rho, q_star, q_star) / q_star

    at_one = v / q_star - 1.0
    # Fine near both ends, where R(ρ) − ρ vanishes like (1 − ρ)^{3/2} on the Edge of Chaos. Between them R is a power
    # series with coefficients ≥ 0, so it crosses the diagonal at most once on either side of 0.
    fine = np.geomspace(1e-5, 1.0, 40)
    grid = np.concatenate([-1.0 + fine[:-1] ** 2, 1.0 - fine[::-1] ** 2])
    images, slopes = block.covariance_and_slope(grid, q_star, q_star)
    values = images / q_star - grid - at_one
    if np.all(abs(values) <= _TOUCH):
        return FixedPoints("ρ", (), continuum=True)
    found = _roots(excess, lambda rho: slope_at(rho) - 1.0, grid, values, slopes / q_star - 1.0)
    roots = [rho for rho in found if rho < 1.0 - 1e-7]
    if abs(excess(-1.0)) <= 1e-12 and not any(abs(rho + 1.0) < 1e-8 for rho in roots):
        roots.insert(0, -1.0)

    def point(rho: float) -> FixedPoint:
        return FixedPoint(rho, slope_at(rho), None, _stability(slope_at(rho), lambda side: beside(rho + side * 1e-4)))

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


def _range(block: Block) -> tuple[float, float]:
    """Where fixed points can be: from where the nearest kink is 8σ away to where all kinks look like zero.

    Below, V is affine to rounding, V = s q + V(0), and its own fixed point V(0)/(1 − s) is included.
    """
    smallest, largest = block.scales
    # Products, for a power of a Python float raises where it overflows.
    low, high = (smallest / 8.0) * (smallest / 8.0), (1e4 * largest) * (1e4 * largest)
    start, local_slope = block.variance(0.0), block.variance_slope(0.0)
    if start > 0.0:
        affine = start / max(1.0 - local_slope, 1e-6) if np.isfinite(local_slope) else start
        low, high = min(low, 0.25 * start, 0.25 * affine), max(high, 1e8 * start)
    top = block.reachable()[1]
    high = high if np.isinf(top) else max(high, 4.0 * top)
    # However extreme the scales are, the grid stays within what can be squared.
    return float(np.clip(low, 1e-140, 1e140)), float(np.clip(high, 1e-139, 1e141))


def _roots(
    excess: Callable[[float], float],
    excess_slope: Callable[[float], float],
    grid: Array,
    values: Array,
    slopes: Array,
) -> list[float]:
    """Zeros of `excess`, with these values and slopes on the grid: crossings, and extrema that touch zero."""
    roots = []
    # Extrema first: a touch may show up as no crossing, or as two spurious ones a rounding error apart.
    for i in np.flatnonzero(np.sign(slopes[:-1]) * np.sign(slopes[1:]) < 0.0):
        nearest = min(values[i : i + 2], key=abs)
        if np.sign(slopes[i]) * nearest > _TOUCH and values[i] * values[i + 1] > 0.0:
            # A maximum above zero or a minimum below it.
            continue
        extremum = find_root(excess_slope, grid[i], grid[i + 1], xtol=1e-15 * abs(grid[i]) + 1e-300, rtol=1e-14)
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


def _solve(excess: Callable[[float], float], low: float, high: float) -> float:
    return find_root(excess, low, high, xtol=1e-15 * max(abs(low), abs(high)), rtol=1e-14)
