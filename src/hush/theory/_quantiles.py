"""A spread given by some of its quantiles: the checks, and what lies between and beyond them."""

import numpy as np

from hush.theory._arrays import Array
from hush.theory._normal import ndtri

__all__ = ["LEVELS", "at_scores", "check_quantiles"]

# At which measured spreads are kept.
LEVELS = tuple(float(level) for level in np.linspace(0.005, 0.995, 100))


def check_quantiles(levels: tuple[float, ...], values: tuple[float, ...]) -> None:
    """Raise a ValueError unless the levels increase within (0, 1) and there is one value for each."""
    at, found = np.asarray(levels), np.asarray(values)
    if at.shape != found.shape or at.ndim != 1 or at.size == 0:
        raise ValueError(f"levels and values must be equally long, got {at.size} and {found.size}.")
    if not (np.all((at > 0) & (at < 1)) and np.all(np.diff(at) > 0)):
        raise ValueError(f"levels must increase strictly within (0, 1), got {levels}.")


def at_scores(levels: tuple[float, ...], values: Array, scores: Array) -> Array:
    """The quantiles at standard normal scores, of two levels at least: straight lines between and beyond them."""
    knots = ndtri(np.asarray(levels))
    slopes = np.diff(values) / np.diff(knots)
    cell = np.clip(np.searchsorted(knots, scores) - 1, 0, knots.size - 2)
    return np.asarray(values[cell] + slopes[cell] * (scores - knots[cell]))
