"""Finite-width noise to first order: every value's relative deviation is a sum over independent sources.

A layer of N units shows |h|²/N with a relative variance of 2/N; what it reads deviates already, and a residual stream
hands the same deviation to every block. So a deviation is kept as one coefficient for each source, and those of
values with common ancestors are correlated by themselves.
"""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["Deviation", "Sources", "blend", "variance_of"]

Deviation = NDArray[np.float64]


class Sources:
    """Hands out independent sources of unit variance."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, variance: float) -> Deviation:
        """A deviation from a source of its own."""
        self.count += 1
        deviation = np.zeros(self.count)
        deviation[-1] = math.sqrt(max(0.0, variance)) if math.isfinite(variance) else 0.0
        return deviation


def blend(*weighted: tuple[float, Deviation]) -> Deviation:
    """Σ weight × deviation."""
    total = np.zeros(max((len(deviation) for _, deviation in weighted), default=0))
    for weight, deviation in weighted:
        total[: len(deviation)] += weight * deviation
    return total


def variance_of(deviation: Deviation) -> float:
    return float(np.square(deviation).sum())
