"""What a transformer starts from: an embedding table, tokens that repeat, and positions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._checks import check_sigmas
from hush.theory.positions.field import Field

__all__ = ["Embedding"]


@dataclass(frozen=True)
class Embedding:
    """x(t) = E[token(t)] + P[t], tables N(0, σ²) and N(0, σ_p²): K[t, t′] = σ² [same token] + σ_p² [same position].

    Arguments:
        sigma: of the token table's entries.
        sigma_position: of the learned table of positions; 0 for none.
    """

    sigma: float = 1.0
    sigma_position: float = 0.0

    def __post_init__(self) -> None:
        check_sigmas(self.sigma, self.sigma_position)

    def of_tokens(self, tokens: ArrayLike) -> Field:
        """The field of these tokens, shape (T,) or (inputs, T)."""
        rows = np.atleast_2d(np.asarray(tokens))
        if rows.ndim != 2 or rows.size == 0:
            raise ValueError(f"tokens must have the shape (T,) or (inputs, T), got {np.asarray(tokens).shape}.")
        n, size = rows.shape
        same = rows[:, None, :, None] == rows[None, :, None, :]
        kernel = self.sigma**2 * same + self.sigma_position**2 * np.eye(size)
        return Field((size,), kernel, np.zeros((n, size)))

    def expected(self, length: int, repeats: float = 0.0, *, inputs: int = 1) -> Field:
        """The mean over texts in which two positions carry the same token with probability `repeats`."""
        if not 0.0 <= repeats <= 1.0:
            raise ValueError(f"repeats must lie in [0, 1], got {repeats}.")
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}.")
        own = np.eye(length)
        within, across = repeats + (1.0 - repeats) * own, np.full((length, length), repeats)
        alike = np.where(np.eye(inputs, dtype=bool)[:, :, None, None], within, across)
        kernel = self.sigma**2 * alike + self.sigma_position**2 * own
        return Field((length,), kernel, np.zeros((inputs, length)))
