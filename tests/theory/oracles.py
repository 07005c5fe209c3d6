"""Independent oracles for the Gaussian integrals of a piecewise-linear φ.

`exact_moments`: the textbook closed forms (the paper's appendices B and E, segment by segment) in 100-digit arithmetic,
where their cancellations do no harm. `hermite_cross_moment`: Mehler's expansion of E[φ(u₁)φ(u₂)] in Hermite polynomials
in extended precision, which shares nothing with the Price integral of the implementation. `quadrature`: kink-split
scipy.integrate.quad, for spot checks of anything.
"""

from dataclasses import dataclass
from itertools import pairwise

import mpmath
import numpy as np
from scipy import integrate

from hush.theory import PiecewiseLinear

DIGITS = 100


@dataclass(frozen=True)
class Moments:
    """E[φ²], its first two derivatives in q, E[φ′²], E[φ], E[φ′] and P(φ = 0)."""

    square: mpmath.mpf
    slope: mpmath.mpf
    curvature: mpmath.mpf
    slope_square: mpmath.mpf
    mean: mpmath.mpf
    mean_slope: mpmath.mpf
    sparsity: mpmath.mpf


def exact_moments(phi: PiecewiseLinear, q: float) -> Moments:
    """All of them at 100 digits, from Φ and n at the kinks."""
    with mpmath.workdps(DIGITS):
        q = mpmath.mpf(q)
        root = mpmath.sqrt(q)
        # Φ(−|k|) on whichever side is the tail, so that no 1 − Φ swallows it.
        tail = [mpmath.erfc(abs(mpmath.mpf(kink)) / root / mpmath.sqrt(2)) / 2 for kink in phi.kinks]
        sides = [-1, *(1 if kink >= 0 else -1 for kink in phi.kinks), 1]
        tail = [mpmath.mpf(0), *tail, mpmath.mpf(0)]
        density = [mpmath.npdf(mpmath.mpf(kink) / root) for kink in phi.kinks]
        edges = [mpmath.mpf(0), *(mpmath.mpf(kink) / root for kink in phi.kinks), mpmath.mpf(0)]
        heights = [mpmath.mpf(0), *density, mpmath.mpf(0)]
        square = slope_square = mean = mean_slope = sparsity = mpmath.mpf(0)
        for i, (alpha, beta) in enumerate(zip(phi.slopes, phi.offsets, strict=True)):
            alpha, beta = mpmath.mpf(alpha), mpmath.mpf(beta)
            # Both ends on one side: the difference of tails; 0 in between: 1 less both.
            m0 = (tail[i] - tail[i + 1]) * sides[i] if sides[i] == sides[i + 1] else 1 - tail[i] - tail[i + 1]
            m1 = heights[i] - heights[i + 1]
            m2 = m0 + edges[i] * heights[i] - edges[i + 1] * heights[i + 1]
            square += alpha**2 * q * m2 + 2 * alpha * beta * root * m1 + beta**2 * m0
            mean += alpha * root * m1 + beta * m0
            mean_slope += alpha * m0
            slope_square += alpha**2 * m0
            if alpha == 0 and beta == 0:
                sparsity += m0
        # d/dq E[f(√q z)] = E[f″]/2 with f = φ²: jumps of f and of f′ at the kinks put point masses into f″.
        slope, curvature = slope_square, mpmath.mpf(0)
        for i, kink in enumerate(phi.kinks):
            kink, n = mpmath.mpf(kink), density[i]
            k = kink / root
            left = mpmath.mpf(phi.slopes[i]) * kink + mpmath.mpf(phi.offsets[i])
            right = mpmath.mpf(phi.slopes[i + 1]) * kink + mpmath.mpf(phi.offsets[i + 1])
            bend = 2 * (right * mpmath.mpf(phi.slopes[i + 1]) - left * mpmath.mpf(phi.slopes[i]))
            step = right**2 - left**2
            steepening = 2 * (mpmath.mpf(phi.slopes[i + 1]) ** 2 - mpmath.mpf(phi.slopes[i]) ** 2)
            # ½ ∫ f″ p, p the N(0, q) density: the bend counts with p, the step with −p′ = k p/√q.
            slope += (bend * n / root + step * k * n / q) / 2
            # d/dq of each term: p ↦ p (k² − 1)/(2q); k p/√q ↦ k p/√q (k² − 3)/(2q); E f″ over segments likewise.
            curvature += steepening * k * n / (2 * q) / 2
            curvature += (bend * n / root * (k**2 - 1) / (2 * q) + step * k * n / q * (k**2 - 3) / (2 * q)) / 2
        return Moments(square, slope, curvature, slope_square, mean, mean_slope, sparsity)


def hermite_cross_moment(
    phi: PiecewiseLinear, rho: np.ndarray, q_a: np.ndarray, q_b: np.ndarray, terms: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(c, c′, Σ|terms of c|, Σ|terms of c′|) with c(ρ) = Σ a_n(q_a) a_n(q_b) ρⁿ, a_n = E[φ(√q z) He_n(z)]/√n!.

    For n ≥ 2, a_n √n! = Σ over kinks of n(k)·(√q Δφ′ He_{n−2}(k) + Δφ He_{n−1}(k)). Sums of absolute terms tell how
    many digits cancellation has left.
    """
    long = np.longdouble
    rho = rho.astype(long)
    streams = [_hermite_coefficients(phi, q) for q in (q_a, q_b)]
    value, slope, size, slope_size = (np.zeros(rho.shape, long) for _ in range(4))
    power, lower = np.ones(rho.shape, long), np.zeros(rho.shape, long)
    for n in range(terms):
        product = next(streams[0]) * next(streams[1])
        value += product * power
        size += abs(product * power)
        slope += n * product * lower
        slope_size += abs(n * product * lower)
        lower, power = power, power * rho
    return value, slope, size, slope_size


def _hermite_coefficients(phi: PiecewiseLinear, q: np.ndarray):
    long = np.longdouble
    root = np.sqrt(q.astype(long))
    exact = {value: exact_moments(phi, float(value)) for value in np.unique(q)}
    as_long = np.vectorize(lambda v: long(mpmath.nstr(v, 25)), otypes=[long])
    yield as_long([exact[value].mean for value in q])
    if phi.is_continuous:
        yield root * as_long([exact[value].mean_slope for value in q])
    # he[i] and he_before[i] are He_{n−2}/√(n−2)!·n(k) and the one before, at each kink.
    bends = [b - a for a, b in zip(phi.slopes, phi.slopes[1:], strict=False)]
    ks = [long(kink) / root for kink in phi.kinks]
    density = [np.exp(-k * k / 2) / np.sqrt(2 * long(np.pi)) for k in ks]
    if not phi.is_continuous:
        yield root * as_long([exact[value].mean_slope for value in q]) + sum(
            long(jump) * n for jump, n in zip(phi.jumps, density, strict=True)
        )
    before, now = [np.zeros(q.shape, long) for _ in ks], density
    order = 0
    while True:
        # now = He_order/√order! · n(k); the coefficient is number order + 2.
        following = [
            (k * h - np.sqrt(long(order)) * b) / np.sqrt(long(order + 1))
            for k, h, b in zip(ks, now, before, strict=True)
        ]
        scale = np.sqrt(long(order + 1) * long(order + 2))
        total = np.zeros(q.shape, long)
        for bend, jump, h, next_h in zip(bends, phi.jumps, now, following, strict=True):
            total += (root * long(bend) * h + long(jump) * np.sqrt(long(order + 1)) * next_h) / scale
        yield total
        before, now = now, following
        order += 1


def quadrature(integrand, phi: PiecewiseLinear, q: float) -> float:
    """∫ integrand(√q z) γ(dz), split at the kinks."""
    root = np.sqrt(q)
    edges = sorted({-40.0, 40.0, *(float(np.clip(kink / root, -40.0, 40.0)) for kink in phi.kinks), -3.0, 0.0, 3.0})
    total = 0.0
    for a, b in pairwise(edges):
        if b > a:
            total += integrate.quad(
                lambda z: integrand(root * z) * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi),
                a,
                b,
                epsabs=0.0,
                epsrel=1e-12,
                limit=200,
            )[0]
    return total
