"""The phase of a network at any (σ_w, σ_b): ordered, chaotic, at the edge between them, or divergent."""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._arrays import Array
from hush.theory._checks import check_positive
from hush.theory.activations.protocol import Activation
from hush.theory.block.choose import block_from
from hush.theory.block.protocol import Block
from hush.theory.fixed_points import FixedPoint, correlation_fixed_points, variance_fixed_points

__all__ = ["Phase", "Regime", "phase", "phase_diagram"]

# χ₁ within this of 1 counts as the Edge of Chaos.
_EDGE = 1e-6


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
    In the divergent regime no q attracts: q, and with it everything else, runs away. A residual stream only grows and
    is divergent in this sense, however slowly; `why` says so.
    """

    regime: Regime
    q_star: float | None
    chi1: float | None
    gradient_depth: float | None
    correlation_depth: float | None
    why: str = ""

    def __str__(self) -> str:
        if self.q_star is None or self.chi1 is None:
            return f"{self.regime.value}: {self.why or 'the variance map has no fixed point that attracts q'}"
        return f"{self.regime.value}: q* = {self.q_star:.4g}, χ₁ = {self.chi1:.4g}"


def phase(
    phi: Activation | Block, sigma_w: float | None = None, sigma_b: float | None = None, q_start: float = 1.0
) -> Phase:
    """The phase at the fixed point that q reaches from q_start (for ReLU at σ_b = 0, where all are fixed, q_start)."""
    check_positive("q_start", q_start)
    block = block_from(phi, sigma_w, sigma_b)
    points = variance_fixed_points(block)
    if points.continuum:
        q = q_start
    else:
        reached = _attractor(block, points.points, q_start)
        if reached is None:
            return Phase(Regime.DIVERGENT, None, None, None, None, points.why_none)
        q = reached
    if q == 0.0:
        # Everything dies out: the gain of an infinitesimal signal.
        chi = block.gain(0.0)
        return Phase(Regime.ORDERED, 0.0, chi, _depth(chi), _depth(chi))
    chi = block.gain(q)
    regime = Regime.EDGE if abs(chi - 1.0) <= _EDGE else Regime.CHAOTIC if chi > 1.0 else Regime.ORDERED
    slope = chi
    if regime is Regime.CHAOTIC:
        stable = correlation_fixed_points(block, q).stable
        slope = block.covariance_slope(stable[-1].value, q, q) / q if stable else chi
    return Phase(regime, q, chi, _depth(chi), _depth(slope))


def phase_diagram(phi: Activation, sigma_w: ArrayLike, sigma_b: ArrayLike, q_start: float = 1.0) -> Array:
    """χ₁ at the variance reached from q_start, for each (σ_w, σ_b): shape (len(sigma_w), len(sigma_b)).

    Above 1 is chaotic, below 1 ordered; ∞ where the variance diverges. A diagram over σ_w and σ_b is one of plain
    chains, and V(q) = σ_w² E[φ²] + σ_b² is what makes one table of E[φ²] serve the whole grid.
    """
    widths, biases = np.asarray(sigma_w, dtype=np.float64), np.asarray(sigma_b, dtype=np.float64)
    check_positive("q_start", q_start)
    scale = max(q_start, *(length**2 for length in phi.scales)) if phi.scales else q_start
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


def _attractor(block: Block, points: tuple[FixedPoint, ...], q_start: float) -> float | None:
    """The fixed point q_start flows to (V is monotone between them); 0 if q dies out, None if it diverges."""
    for point in points:
        if abs(q_start - point.value) <= 1e-9 * point.value:
            return point.value
    if block.variance(q_start) > q_start:
        above = [p for p in points if p.value > q_start]
        return above[0].value if above else None
    below = [p for p in points if p.value < q_start]
    return below[-1].value if below else 0.0


def _depth(factor: float) -> float:
    """1/|log factor|, ∞ at 1."""
    if factor <= 0.0 or math.isinf(factor):
        return 0.0
    return math.inf if abs(factor - 1.0) <= _EDGE else 1.0 / abs(math.log(factor))
