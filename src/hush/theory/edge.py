"""The Edge of Chaos: σ_w and σ_b with which a gradient keeps its size from layer to layer (χ₁ = 1), and so does the
signal (V(q*) = q*)."""

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._arrays import Array
from hush.theory._checks import check_positive
from hush.theory.activations.protocol import Activation

__all__ = ["edge_curve", "edge_of_chaos"]


def edge_of_chaos(phi: Activation, q_star: float) -> tuple[float, float]:
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


def edge_curve(phi: Activation, q_star: ArrayLike) -> tuple[Array, Array]:
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
