"""Gaussian tails and truncated moments to full relative precision, tails and narrow intervals included.

Everything in `hush.theory` is a sum of these. The textbook closed forms (1 − Φ, differences of erf) lose
every digit in the tails (τ/√q = 40) and on narrow intervals (clip m → 0), so none of them is used bare.

Notation: γ(dz) is the standard normal measure and n(z) its density.
"""

import math

import numpy as np
from scipy.special import ndtr

from hush.theory._arrays import Array, Mask

_SQRT_2PI = np.sqrt(2.0 * np.pi)

# An interval [a, b] is narrow when (b − a)·max(1, |a|, |b|) is below this: the Gaussian varies so little over
# it that fixed Gauss–Legendre is exact to rounding, while differences of tails would cancel.
_NARROW = 4.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_NODES = 0.5 * (_NODES + 1.0)
_WEIGHTS = 0.5 * _WEIGHTS

# Above this the tail ratios come from a continued fraction.
_LARGE = 3.0


def density(z: float | Array) -> Array:
    """n(z) = e^{−z²/2}/√(2π); 0 at ±∞."""
    z = np.asarray(z, dtype=np.float64)
    return np.asarray(np.exp(-0.5 * z * z) / _SQRT_2PI)


def tail_moments(t: float | Array, order: int) -> list[Array]:
    """[I_0, …, I_order] with I_k = ∫_t^∞ (z − t)^k/k! γ(dz), the iterated integrals of the Gaussian tail.

    k I_k = I_{k−2} − t I_{k−1}, with I_{−1} = n. For large t this cancels, by t² a step, so there the ratios
    r_k = I_k/I_{k−1} come from the continued fraction r_k = 1/(t + (k + 1) r_{k+1}). t = −∞ only for order 0.
    """
    t = np.asarray(t, dtype=np.float64)
    tails = [ndtr(-t)]
    if order == 0:
        return tails
    small = np.minimum(t, _LARGE)
    last, forward = density(small), [ndtr(-small)]
    for k in range(1, order + 1):
        last, following = forward[-1], (last - small * forward[-1]) / k
        forward.append(following)
    large = t > _LARGE
    if large.any():
        product = tails[0][large]
        for k, ratio in enumerate(_tail_ratios(t[large], order), 1):
            product = product * ratio
            forward[k][large] = product
    return tails + forward[1:]


def _tail_ratios(t: Array, order: int) -> list[Array]:
    """[r_1, …, r_order] for t > 3, converged to rounding."""
    terms = 10 + int(150.0 / t.min())
    # As if r_k were the same from here on.
    ratio = 2.0 / (t + np.sqrt(t * t + 4.0 * (terms + 2)))
    ratios = []
    for k in range(terms, 0, -1):
        ratio *= k + 1.0
        ratio += t
        np.reciprocal(ratio, out=ratio)
        if k <= order:
            ratios.append(ratio.copy())
    return ratios[::-1]


def interval_moments(a: Array, b: Array, width: Array, order: int) -> list[Array]:
    """[∫_a^b (z − a)^k γ(dz) for k = 0 … order], each to full relative precision; 1-d arrays, a < b.

    The width b − a is passed as well, because a caller who knows it better than the rounded difference of a and b
    (a clip m beside a threshold τ ≫ m) must not lose it. a = −∞ is allowed for order 0 only, b = ∞ always.
    """
    narrow = is_narrow(a, b, width)
    if narrow.all():
        moments = [np.empty(a.shape) for _ in range(order + 1)]
    else:
        moments = _wide_moments(np.where(narrow, 0.0, a), np.where(narrow, np.inf, b), width, order)
    if narrow.any():
        w = width[narrow]
        u = w[:, None] * _NODES
        weighted = _WEIGHTS * density(a[narrow][:, None] + u)
        for moment in moments:
            moment[narrow] = w * weighted.sum(-1)
            weighted *= u
    return moments


def is_narrow(a: Array, b: Array, width: Array) -> Mask:
    """Where [a, b] is so narrow that quadrature is exact and differences of tails would cancel."""
    finite = np.isfinite(width)
    reach = np.maximum(1.0, np.maximum(abs(np.where(finite, a, 0.0)), abs(np.where(finite, b, 0.0))))
    return np.asarray(width * reach <= _NARROW)


def _wide_moments(a: Array, b: Array, width: Array, order: int) -> list[Array]:
    """`interval_moments` where [a, b] is not narrow: differences of tails that do not cancel."""
    # Left of zero the mass sits at the right end: measure from there, then move the origin to a.
    left = b <= 0.0
    finite = np.where(np.isfinite(width), width, 0.0)
    from_start = _right_moments(np.where(left, -b, a), np.where(left, -a, b), finite, order)
    if not left.any():
        return from_start
    moments = []
    for k in range(order + 1):
        # (z − a)^k = (w − (b − z))^k; the terms fall off like 1/(w|b|), so the signs do no harm.
        total = sum(math.comb(k, j) * (-1.0) ** j * finite ** (k - j) * from_start[j] for j in range(k + 1))
        moments.append(np.where(left, total, from_start[k]))
    return moments


def _right_moments(a: Array, b: Array, width: Array, order: int) -> list[Array]:
    """∫_a^b (z − a)^k γ(dz) for wide intervals with b > 0, as the tail at a minus the tail at b."""
    at_a, at_b = tail_moments(a, order), tail_moments(b, order)
    moments = []
    for k in range(order + 1):
        # (z − a)^k/k! = Σ_j w^{k−j}/(k−j)! (z − b)^j/j! beyond b.
        beyond = sum(width ** (k - j) / math.factorial(k - j) * at_b[j] for j in range(k + 1))
        moments.append(math.factorial(k) * (at_a[k] - beyond))
    return moments
