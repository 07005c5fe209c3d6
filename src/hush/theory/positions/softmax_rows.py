"""How sharp a softmax row is: α(n, v) = E[Σ a²] for a = softmax(ℓ), ℓ of n independent N(0, v).

With 1/Z² = ∫₀^∞ u e^{−uZ} du the expectation over n logits is a single integral of one-logit expectations,

    α = n ∫₀^∞ u E[e^{2ℓ − u e^ℓ}] E[e^{−u e^ℓ}]^{n−1} du,

done in log u by the trapezoidal rule (its error falls off exponentially) and in ℓ by panels of Gauss–Legendre. α is 1/n
for equal logits, nears e^v/n for many, and 1 for v → ∞. Two rows whose logits have correlation r overlap by about
E[Σ a_s a′_s] ≈ e^{r√(w w′)}/n′ for n ≤ n′, with w = log(nα): exact at r = 0, at r = 1 for rows of the same length, and
for many small logits.
"""

from functools import lru_cache

import numpy as np

from hush.theory._arrays import Array
from hush.theory.positions.field import Indices

__all__ = ["discernment", "participation", "sharpness"]

# Grid of the tabulated w(n, v): above v = 400 a row is its largest logit.
_V_MOST = 400.0


def participation(n: int, v: float) -> float:
    """α(n, v) = E[Σ a²], by quadrature; absolute error below 1e-9 (see the tests).

    Raises:
        ValueError: if n is not a whole number of at least 1, or v is negative or above 400.
    """
    if n != int(n) or n < 1:
        raise ValueError(f"n must be a whole number of at least 1, got {n}.")
    if not 0.0 <= v <= _V_MOST:
        raise ValueError(f"the logit variance must lie in [0, {_V_MOST:g}], got {v}.")
    return _participation(int(n), float(v))


@lru_cache(maxsize=65536)
def _participation(n: int, v: float) -> float:
    return _row_moments(n, v)[0]


@lru_cache(maxsize=65536)
def _row_moments(n: int, v: float) -> tuple[float, float]:
    """(α, γ)."""
    if n == 1:
        return 1.0, 0.0
    if v == 0.0:
        return 1.0 / n, (1.0 - 1.0 / n) / n
    deviation = np.sqrt(v)
    logits, weights = _normal_nodes(max(160, int(24 * deviation)))
    logits = deviation * logits
    # Z lies between its largest term and n of them, u around 1/Z.
    low, high = -deviation * 9.0 - np.log(n) - 24.0, deviation * 9.0 + 5.0
    step = 0.1
    log_u = np.arange(low, high, step)
    power = np.minimum(log_u[:, None] + logits, 7.0)
    # E[(u e^ℓ)^k e^{−u e^ℓ}] for k = 0 … 4; 1/Z^k = ∫ u^{k−1} e^{−uZ} du/(k − 1)!, and du = u d log u.
    grown = np.exp(power)
    term = np.exp(-grown)
    one = []
    for _ in range(5):
        one.append(term @ weights)
        term = term * grown
    others, more = one[0] ** (n - 1), one[0] ** (n - 2)
    second = n * step * float(np.sum(one[2] * others))
    third = n * step * float(np.sum(one[3] * others)) / 2.0
    fourth = n * step * float(np.sum(one[4] * others)) / 6.0
    pairs = n * (n - 1) * step * float(np.sum(one[2] ** 2 * more)) / 6.0
    alpha = min(max(second, 1.0 / n), 1.0)
    return alpha, max(second - 2.0 * third + fourth + pairs, 0.0)


@lru_cache(maxsize=32)
def _normal_nodes(panels: int) -> tuple[Array, Array]:
    """z and weights for the standard normal over ±9 standard deviations."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    edges = np.linspace(-9.0, 9.0, panels + 1)
    half = 0.5 * (edges[1] - edges[0])
    z = ((edges[:-1] + half)[:, None] + half * nodes).ravel()
    mass = np.tile(half * weights, panels) * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    return z, mass / mass.sum()


def sharpness(counts: Array | Indices, variances: Array, head_dim: int | None = None) -> Array:
    """w = log(nα) of each row, n from `counts` and v from `variances`; 0 for equal logits.

    Given a query of d numbers, the logits of its row have the variance v χ²_d/d, so at finite `head_dim` α is averaged
    over that scale. log w is nearly a straight line in log v and in log n; it is interpolated on a fixed grid, so that
    every layer of a network asks for the same few integrals, with a relative error below 3e-3.
    """
    n, v = np.broadcast_arrays(np.asarray(counts, dtype=np.float64), np.asarray(variances, dtype=np.float64))
    if not (v <= _V_MOST).all():
        raise ValueError(f"the logit variance must be at most {_V_MOST:g}, got {v.max()}.")
    scales, weights = (np.ones(1), np.ones(1)) if head_dim is None else _chi_square_nodes(head_dim)
    result = np.zeros(n.shape)
    chosen = (v > 1e-12) & (n > 1)
    for count in np.unique(n[chosen]):
        rows = chosen & (n == count)
        at = np.minimum(np.outer(v[rows], scales), _V_MOST)
        alpha = np.exp(_log_sharpness(float(count), np.log(at))) @ weights / count
        result[rows] = np.log(count * alpha)
    return result


def _log_sharpness(count: float, log_v: Array) -> Array:
    """w at one length, between the grid's two nearest lengths and between its v; below the grid w = v(1 − 1/n)."""
    lengths = _some_lengths(int(count))
    above = lengths[-1]
    below = max(m for m in lengths if m <= count)
    # Four nodes to a factor of 2, none below v = 2⁻¹⁰.
    low = max(float(np.floor(log_v.min() / np.log(2.0) * 4.0)), -40.0)
    grid = np.arange(low, max(float(np.ceil(log_v.max() / np.log(2.0) * 4.0)), low) + 1.0)
    lines = []
    for m in (below, above):
        at_grid = [max(np.log(m * _participation(m, min(float(2.0 ** (k / 4.0)), _V_MOST))), 1e-300) for k in grid]
        lines.append(np.log(at_grid))
    share = 0.0 if above == below else (np.log(count) - np.log(below)) / (np.log(above) - np.log(below))
    line = (1.0 - share) * lines[0] + share * lines[1]
    at = log_v / np.log(2.0) * 4.0
    inside = np.interp(at, grid, line)
    small = np.log(1.0 - 1.0 / count) + log_v
    return np.asarray(np.exp(np.where(at < grid[0], small, inside)))


def discernment(counts: Array | Indices, variances: Array) -> Array:
    """γ/α of each row, γ = E[Σ_s a_s² (1 − 2a_s + Σ a²)]: how far a weighted value lies from the row's mean, squared.

    1 − 1/n for equal logits, 0 where one weight takes all. On the grid of `sharpness`.
    """
    n, v = np.broadcast_arrays(np.asarray(counts, dtype=np.float64), np.asarray(variances, dtype=np.float64))
    result = np.zeros(n.shape)
    for i in np.flatnonzero(n > 1):
        length = min(_some_lengths(int(n[i])), key=lambda m: abs(m - n[i]))
        at = float(np.clip(np.log2(max(v[i], 2.0**-10)) * 4.0, -40.0, np.log2(_V_MOST) * 4.0))
        low, share = np.floor(at), at - np.floor(at)
        ratios = []
        for k in (low, low + 1.0):
            alpha, gamma = _row_moments(length, min(float(2.0 ** (k / 4.0)), _V_MOST))
            ratios.append(gamma / alpha)
        result[i] = (1.0 - share) * ratios[0] + share * ratios[1]
    return result


@lru_cache(maxsize=4096)
def _some_lengths(count: int) -> tuple[int, ...]:
    """2 … 16, then a fifth more at a time, to the first that is not below `count`."""
    lengths = [2]
    while lengths[-1] < count:
        lengths.append(lengths[-1] + 1 if lengths[-1] < 16 else int(lengths[-1] * 1.2))
    return tuple(lengths)


@lru_cache(maxsize=64)
def _chi_square_nodes(degrees: int) -> tuple[Array, Array]:
    """Nodes and weights for χ²_d/d: its quantiles at equal probabilities, rescaled to mean 1."""
    if degrees < 1:
        raise ValueError(f"head_dim must be at least 1, got {degrees}.")
    from scipy import special

    quantiles = special.gammaincinv(degrees / 2.0, (np.arange(24) + 0.5) / 24.0) * 2.0 / degrees
    return np.asarray(quantiles / quantiles.mean()), np.full(24, 1.0 / 24.0)
