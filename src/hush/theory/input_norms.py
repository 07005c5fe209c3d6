"""The spread of the inputs' norms |x|²/N, which decides where the variance of each input starts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from hush.theory._arrays import Array

__all__ = ["IMAGE_NORMS", "InputNorms"]


@dataclass(frozen=True)
class InputNorms:
    """The spread of |x|²/N over the inputs, as quantiles relative to their mean square; log-linear between them."""

    levels: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        levels, values = np.asarray(self.levels), np.asarray(self.values)
        if levels.shape != values.shape or levels.ndim != 1 or levels.size == 0:
            raise ValueError(f"levels and values must be equally long, got {levels.size} and {values.size}.")
        if not (np.all((levels > 0) & (levels < 1)) and np.all(np.diff(levels) > 0)):
            raise ValueError(f"levels must increase strictly within (0, 1), got {self.levels}.")
        if not (np.all(np.isfinite(values) & (values > 0)) and np.all(np.diff(values) >= 0)):
            raise ValueError(f"values must be positive and must not decrease, got {self.values}.")

    @classmethod
    def from_samples(cls, squares: ArrayLike) -> "InputNorms":
        """From measured |x|²/N of some inputs, taken relative to their mean."""
        squares = np.asarray(squares, dtype=np.float64).ravel()
        if squares.size == 0 or not np.all(np.isfinite(squares) & (squares > 0)):
            raise ValueError("the measured |x|²/N must be positive and finite, and there must be at least one.")
        levels = tuple(float(level) for level in np.linspace(0.005, 0.995, 100))
        return cls(levels, tuple(float(v) for v in np.quantile(squares / squares.mean(), levels)))

    def at(self, scores: Array) -> Array:
        """The quantiles at standard normal scores, extrapolated log-linearly beyond the outermost levels."""
        knots, logs = ndtri(np.asarray(self.levels)), np.log(np.asarray(self.values))
        if knots.size == 1:
            return np.full(scores.shape, self.values[0])
        slopes = np.diff(logs) / np.diff(knots)
        cell = np.clip(np.searchsorted(knots, scores) - 1, 0, knots.size - 2)
        return np.asarray(np.exp(logs[cell] + slopes[cell] * (scores - knots[cell])))


# MNIST standardised over the data set: |x|²/784 of single images.
IMAGE_NORMS = InputNorms((0.01, 0.1, 0.5, 0.9, 0.99), (0.44, 0.64, 0.97, 1.40, 1.90))
