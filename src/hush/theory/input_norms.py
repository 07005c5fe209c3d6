"""The spread of the inputs' norms |x|²/N, which decides where the variance of each input starts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._arrays import Array
from hush.theory._quantiles import LEVELS, at_scores, check_quantiles

__all__ = ["IMAGE_NORMS", "InputNorms"]


@dataclass(frozen=True)
class InputNorms:
    """The spread of |x|²/N over the inputs, as quantiles relative to their mean square; log-linear between them."""

    levels: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        check_quantiles(self.levels, self.values)
        values = np.asarray(self.values)
        if not (np.all(np.isfinite(values) & (values > 0)) and np.all(np.diff(values) >= 0)):
            raise ValueError(f"values must be positive and must not decrease, got {self.values}.")

    @classmethod
    def from_samples(cls, squares: ArrayLike) -> "InputNorms":
        """From measured |x|²/N of some inputs, taken relative to their mean."""
        squares = np.asarray(squares, dtype=np.float64).ravel()
        if squares.size == 0 or not np.all(np.isfinite(squares) & (squares > 0)):
            raise ValueError("the measured |x|²/N must be positive and finite, and there must be at least one.")
        return cls(LEVELS, tuple(float(v) for v in np.quantile(squares / squares.mean(), LEVELS)))

    def at(self, scores: Array) -> Array:
        """The quantiles at standard normal scores, extrapolated log-linearly beyond the outermost levels."""
        if len(self.values) == 1:
            return np.full(scores.shape, self.values[0])
        return np.asarray(np.exp(at_scores(self.levels, np.log(np.asarray(self.values)), scores)))


# MNIST standardised over the data set: |x|²/784 of single images.
IMAGE_NORMS = InputNorms((0.01, 0.1, 0.5, 0.9, 0.99), (0.44, 0.64, 0.97, 1.40, 1.90))
