"""How alike two inputs of a data set are before the network sees them: the spread of their cosines."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._arrays import Array
from hush.theory._quantiles import LEVELS, at_scores, check_quantiles

__all__ = ["IMAGE_CORRELATIONS", "InputCorrelations"]

# Two inputs this close to each other, or to being opposite, count as being so far apart.
_CLOSEST = 1e-6


@dataclass(frozen=True)
class InputCorrelations:
    """The spread of the cosine of two inputs, as quantiles; straight lines in atanh ρ between and beyond them.

    Arguments:
        levels: increasing, within (0, 1); a single one for a cosine that all pairs share.
        values: within (−1, 1), not decreasing.
    """

    levels: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        check_quantiles(self.levels, self.values)
        values = np.asarray(self.values)
        if not (np.all(np.abs(values) < 1.0) and np.all(np.diff(values) >= 0)):
            raise ValueError(f"values must lie within (−1, 1) and must not decrease, got {self.values}.")

    @classmethod
    def from_samples(cls, cosines: ArrayLike) -> "InputCorrelations":
        """From measured cosines of pairs of inputs."""
        found = np.asarray(cosines, dtype=np.float64).ravel()
        if found.size == 0 or not np.all(np.abs(found) <= 1.0 + 1e-6):
            raise ValueError("cosines must lie between −1 and 1, and there must be at least one.")
        kept = np.clip(found, _CLOSEST - 1.0, 1.0 - _CLOSEST)
        return cls(LEVELS, tuple(float(value) for value in np.quantile(kept, LEVELS)))

    @classmethod
    def from_inputs(cls, inputs: ArrayLike, pairs: int = 20_000, seed: int = 0) -> "InputCorrelations":
        """From the inputs themselves, one a row; of so many random pairs of different rows.

        Raises:
            ValueError: if there are fewer than two rows, or one that is zero or not finite.
        """
        x = np.asarray(inputs, dtype=np.float64)
        x = x.reshape(len(x), -1) if x.ndim > 1 else x
        if x.ndim != 2 or len(x) < 2:
            raise ValueError(f"inputs must be at least two rows of numbers, got an array of shape {x.shape}.")
        norms = np.sqrt((x**2).sum(1))
        if not np.all(np.isfinite(norms) & (norms > 0.0)):
            raise ValueError("every input must be finite and not zero throughout, for its direction to be known.")
        rng = np.random.default_rng(seed)
        first = rng.integers(0, len(x), pairs)
        second = (first + rng.integers(1, len(x), pairs)) % len(x)
        return cls.from_samples((x[first] * x[second]).sum(1) / (norms[first] * norms[second]))

    def at(self, scores: Array) -> Array:
        """The quantiles at standard normal scores."""
        if len(self.values) == 1:
            return np.full(scores.shape, self.values[0])
        found = np.tanh(at_scores(self.levels, np.arctanh(np.asarray(self.values)), scores))
        return np.asarray(np.clip(found, _CLOSEST - 1.0, 1.0 - _CLOSEST))


# MNIST standardised over the data set: the cosine of two images.
IMAGE_CORRELATIONS = InputCorrelations(
    (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99),
    (0.005, 0.07, 0.11, 0.19, 0.28, 0.38, 0.48, 0.55, 0.70),
)
