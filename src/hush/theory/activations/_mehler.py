"""E[f(u₁)f(u₂)] for correlated Gaussians and any function f, by Mehler's expansion in Hermite polynomials:

    E[f(u₁)f(u₂)] = Σ_n a_n(q_a) a_n(q_b) ρⁿ,    a_n(q) = E[f(√q z) He_n(z)]/√n!

Its remainder is known: Σ a_n² = E[f²], so what the first terms leave of E[f²] bounds the error. Where that is too much
(q far above the scale of f, where f looks kinked) the double integral is done instead, as two single ones.
"""

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from hush.theory._arrays import Array, offender

__all__ = ["expect_product"]

_TERMS = 160
# Where the expansion may be wrong by more than this part of E[f²], the double integral is done.
_REMAINDER = 1e-12
# So many Gaussians of the inner integral are held in memory at a time, each with some two thousand nodes.
_CHUNK = 256


class _Nodes(Protocol):
    """(x, z, weights) for Gaussians of these centres and spreads; see `_panels`."""

    def __call__(
        self, centre: Array, spread: Array, *, count: int = 16, step: float = 1.0
    ) -> tuple[Array, Array, Array]: ...


def expect_product(
    function: Callable[[Array], Array], nodes: _Nodes, rho: float | Array, q_a: float | Array, q_b: float | Array
) -> Array:
    """E[f(u₁)f(u₂)], u₁ ~ N(0, q_a), u₂ ~ N(0, q_b) with correlation ρ; elementwise over their broadcast."""
    r, a, b = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (rho, q_a, q_b)))
    if not np.all(abs(r) <= 1.0):
        raise ValueError(f"a correlation must lie in [−1, 1], got {offender(r, abs(r) <= 1.0)}.")
    for q in (a, b):
        good = (q > 0.0) & np.isfinite(q)
        if not np.all(good):
            raise ValueError(f"the variances must be positive and finite, got {offender(q, good)}.")
    values, place = np.unique(np.concatenate([a.ravel(), b.ravel()]), return_inverse=True)
    at_a, at_b = place.reshape(2, -1)
    expanded = [_coefficients(function, nodes, float(q)) for q in values]
    coefficients = np.array([row for row, _ in expanded])
    remainder = np.array([rest for _, rest in expanded])
    powers = r.ravel()[:, None] ** np.arange(_TERMS)
    total = (coefficients[at_a] * coefficients[at_b] * powers).sum(1)
    # Beyond the last term |ρ|ⁿ is at most |ρ|^terms.
    missing = np.sqrt(remainder[at_a] * remainder[at_b]) * abs(r.ravel()) ** _TERMS
    for i in np.flatnonzero(missing > _REMAINDER):
        total[i] = _double_integral(function, nodes, float(r.flat[i]), float(a.flat[i]), float(b.flat[i]))
    return np.asarray(total.reshape(r.shape))


def _coefficients(function: Callable[[Array], Array], nodes: _Nodes, q: float) -> tuple[Array, float]:
    """(a_n for n < terms, the part of E[f²] that they leave)."""
    # Narrower panels than the moments need: the highest polynomial has a zero every quarter of a standard deviation.
    x, z, weights = (values[0] for values in nodes(np.zeros(1), np.array([math.sqrt(q)]), step=0.5))
    at_nodes = function(x)
    square = float(np.sum(weights * at_nodes**2))
    # √(n+1) h_{n+1} = z h_n − √n h_{n−1} for h_n = He_n/√n!. The weights go with them, for h_n alone overflows far out.
    before, now = np.zeros(x.shape), weights * at_nodes
    row = np.empty(_TERMS)
    for n in range(_TERMS):
        row[n] = now.sum()
        before, now = now, (z * now - math.sqrt(n) * before) / math.sqrt(n + 1)
    return row, max(square - float(np.sum(row**2)), 0.0) / max(square, 1e-300)


def _double_integral(function: Callable[[Array], Array], nodes: _Nodes, rho: float, q_a: float, q_b: float) -> float:
    """∫ f(√q_a z) E[f(√q_b(ρz + √(1−ρ²)ε))] γ(dz)."""
    x, z, weights = (values[0] for values in nodes(np.zeros(1), np.array([math.sqrt(q_a)])))
    outer = weights * function(x)
    kept = abs(outer) > 1e-22 * abs(outer).max()
    centre, outer = math.sqrt(q_b) * rho * z[kept], outer[kept]
    # At ρ = ±1 the inner Gaussian is a point; so small a spread is one to f.
    spread = math.sqrt(q_b * max((1.0 - rho) * (1.0 + rho), 1e-30))
    total = 0.0
    for start in range(0, centre.size, _CHUNK):
        part = centre[start : start + _CHUNK]
        inner_x, _, inner_weights = nodes(part, np.full(part.size, spread), count=12)
        total += float(np.einsum("ij,ij->i", inner_weights, function(inner_x)) @ outer[start : start + _CHUNK])
    return total
