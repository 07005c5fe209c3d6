"""A function of (ρ, q_a, q_b) for every pair out of a list of Gaussians, where they are too many to do one by one.

The variances come from few positions and the correlations are smooth in their angle θ = arccos ρ, so the function is
interpolated by Chebyshev polynomials in θ and in log q. Some pairs are always done one by one too; where the two differ
by more than 1e-6 of the largest value, the polynomials get more terms, and at last every pair is done one by one.
"""

from collections.abc import Callable

import numpy as np
from numpy.polynomial import chebyshev

from hush.theory._arrays import Array

__all__ = ["PairFunction", "over_pairs"]

PairFunction = Callable[[Array, Array, Array], Array]

_FEW = 4000
_CHECKED = 64
_TOLERANCE = 1e-6
# Terms in (θ, log q): a first and a second attempt.
_ORDERS = ((20, 8), (48, 14))


def over_pairs(function: PairFunction, rho: Array, q_a: Array, q_b: Array) -> Array:
    """function(ρ[i, j], q_a[i], q_b[j]), shape (i, j)."""
    if rho.size > _FEW:
        for orders in _ORDERS:
            table = _interpolated(function, rho, q_a, q_b, *orders)
            rng = np.random.default_rng(0)
            i, j = rng.integers(0, rho.shape[0], _CHECKED), rng.integers(0, rho.shape[1], _CHECKED)
            # The pairs of the highest correlation as well: there a kinked activation bends most.
            highest = np.argsort(rho, axis=None)[:: max(1, rho.size // 16)][-16:]
            i, j = np.concatenate([i, highest // rho.shape[1]]), np.concatenate([j, highest % rho.shape[1]])
            exact = function(rho[i, j], q_a[i], q_b[j])
            if abs(table[i, j] - exact).max() <= _TOLERANCE * abs(exact).max():
                return table
    shape = rho.shape
    return function(rho, np.broadcast_to(q_a[:, None], shape), np.broadcast_to(q_b[None, :], shape))


def _interpolated(function: PairFunction, rho: Array, q_a: Array, q_b: Array, angles: int, levels: int) -> Array:
    theta = np.arccos(rho)
    theta_nodes, theta_scale = _nodes(float(theta.min()), float(theta.max()), angles)
    low, high = np.log(min(q_a.min(), q_b.min())), np.log(max(q_a.max(), q_b.max()))
    if high - low < 1e-12:
        levels, high = 1, low
    level_nodes, level_scale = _nodes(low, high, levels)
    r, x, y = np.meshgrid(np.cos(theta_nodes), np.exp(level_nodes), np.exp(level_nodes), indexing="ij")
    values = function(np.clip(r, -1.0, 1.0), x, y)
    # From the values at the nodes to Chebyshev coefficients, along each axis.
    to_angle, to_level = _transform(angles), _transform(levels)
    coefficients = np.einsum("ka,ib,jc,abc->kij", to_angle, to_level, to_level, values, optimize=True)
    basis_a = chebyshev.chebvander(level_scale(np.log(q_a)), levels - 1)
    basis_b = chebyshev.chebvander(level_scale(np.log(q_b)), levels - 1)
    # Clenshaw's recurrence in θ, each coefficient a matrix over the pairs.
    t = theta_scale(theta)
    ahead, further = np.zeros(rho.shape), np.zeros(rho.shape)
    for k in range(angles - 1, 0, -1):
        ahead, further = basis_a @ coefficients[k] @ basis_b.T + 2.0 * t * ahead - further, ahead
    return np.asarray(basis_a @ coefficients[0] @ basis_b.T + t * ahead - further)


def _nodes(low: float, high: float, count: int) -> tuple[Array, Callable[[Array], Array]]:
    """Chebyshev nodes on [low, high], and the map from there to [−1, 1]."""
    middle, half = 0.5 * (low + high), max(0.5 * (high - low), 1e-12)
    return middle + half * chebyshev.chebpts1(count), lambda x: np.clip((x - middle) / half, -1.0, 1.0)


def _transform(count: int) -> Array:
    basis = chebyshev.chebvander(chebyshev.chebpts1(count), count - 1)
    return np.asarray(2.0 / count * basis.T * np.where(np.arange(count)[:, None] == 0, 0.5, 1.0))
