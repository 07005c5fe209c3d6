"""The mean of a pair of random softmax rows as a map of kernels, K′ = E[A K A′ᵀ], and its adjoint.

Row t attends to the first n_t positions. If logits are exchangeable along the row, E[A_ts A′_t′s′] takes three values,
which follow from the overlap β_tt′ = E[Σ_s A_ts A′_t′s] alone (m and M the smaller and the larger of n_t, n_t′):

    β/m                       s = s′ < m
    (m/M − β)/(m(m − 1))      s ≠ s′, both < m
    1/(mM)                    s or s′ beyond the shorter row

since each row sums to 1. With prefix sums both maps cost T², not T⁴.
"""

import numpy as np

from hush.theory._arrays import Array
from hush.theory.positions.field import Indices

__all__ = ["mix", "spread_back"]


def mix(kernel: Array, counts: Indices, overlap: Array) -> Array:
    """E[A K A′ᵀ] of a (T, T) kernel."""
    m, outer = _lengths(counts)
    same, near, far = _weights(m, outer, overlap)
    diagonal = np.concatenate([[0.0], np.cumsum(np.diagonal(kernel))])
    square = np.zeros((kernel.shape[0] + 1, kernel.shape[1] + 1))
    square[1:, 1:] = kernel.cumsum(0).cumsum(1)
    within, along = square[m, m], diagonal[m]
    rows = square[counts[:, None], counts[None, :]]
    return np.asarray(same * along + near * (within - along) + far * (rows - within))


def spread_back(gradient: Array, counts: Indices, overlap: Array) -> Array:
    """E[Aᵀ G A], where the rows' gradient arrives at the positions that they attend to."""
    m, outer = _lengths(counts)
    same, near, far = _weights(m, outer, overlap)
    size = len(counts)
    alone = _reaching(far * gradient, counts, size)
    both = np.diagonal(_reaching((near - far) * gradient, counts, size))
    later = np.maximum(np.arange(size)[:, None], np.arange(size)[None, :])
    result = alone + both[later]
    np.fill_diagonal(result, np.diagonal(_reaching(same * gradient, counts, size)))
    return result


def _reaching(values: Array, counts: Indices, size: int) -> Array:
    """[s, s′] ↦ the sum of values[t, t′] over the rows that reach both: n_t > s, n_t′ > s′."""
    reach = (counts[:, None] > np.arange(size)).astype(np.float64)
    return np.asarray(reach.T @ values @ reach)


def _lengths(counts: Indices) -> tuple[Indices, Indices]:
    return np.minimum.outer(counts, counts), np.maximum.outer(counts, counts)


def _weights(m: Indices, outer: Indices, overlap: Array) -> tuple[Array, Array, Array]:
    return overlap / m, (m / outer - overlap) / np.maximum(m * (m - 1), 1), 1.0 / (m * outer)
