"""E[φ(u₁)φ(u₂)] against Mehler's expansion, conditional quadrature and the arc-cosine kernel."""

import math

import mpmath
import numpy as np
import pytest

from hush.theory import (
    PiecewiseLinear,
    crelu,
    fatrelu,
    relu,
    shifted_relu,
)
from tests.theory.oracles import exact_moments, hermite_cross_moment
from tests.theory.samples import IDS, NAMED, random_activation, random_variances


def test_correlation_map_matches_mehlers_expansion_on_20000_points() -> None:
    rng = np.random.default_rng(7)
    drawn, worst, judged = 0, 0.0, {"R": 0, "R′": 0}
    while min(judged.values()) < 20_000:
        # Most pairs where 1500 terms converge; some close to ±1, where it takes thousands.
        close = drawn < 1_500
        size, terms, largest = (150, 8000, 0.995) if close else (250, 1500, 0.975)
        phi = random_activation(rng, smallest_clip=1e-5)
        q = random_variances(rng, phi, 8)
        q_a, q_b = rng.choice(q, size), rng.choice(q, size)
        q_b = np.where(rng.random(size) < 0.5, q_a, q_b)
        rho = rng.uniform(0.9 if close else -largest, largest, size)
        narrowest = _narrowest(phi, np.maximum(q_a, q_b))
        value, slope, size_value, size_slope = hermite_cross_moment(phi, rho, q_a, q_b, terms)
        drawn += size
        # Each alone, or both at once.
        alone = rng.random() < 0.5
        ours_value, ours_slope = (
            (phi.cross_moment(rho, q_a, q_b), phi.cross_moment_slope(rho, q_a, q_b))
            if alone
            else phi.cross_moment_and_slope(rho, q_a, q_b)
        )
        for name, ours, expected, sizes in (
            ("R", ours_value, value, size_value),
            ("R′", ours_slope, slope, size_slope),
        ):
            # The expansion's own error: rounding of 64-bit mantissas over all terms, times what narrow clips and
            # alternating terms cost. Where it keeps too few digits it is no judge, and the point does not count.
            fit = (1e-17 / narrowest * sizes < 1e-10 * abs(expected)) & (abs(expected) > 1e-280)
            judged[name] += int(fit.sum())
            error = abs(ours[fit] - expected[fit]) / abs(expected[fit])
            worst = max(worst, float(error.max(initial=0.0)))
            assert worst <= 1e-9, (phi, worst)
    assert min(judged.values()) > 0.8 * drawn  # nearly everywhere it was


def _narrowest(phi: PiecewiseLinear, high: np.ndarray) -> np.ndarray:
    """The smaller of 1 and the narrowest gap between kinks in units of the larger standard deviation."""
    gaps = np.diff(phi.kinks)
    return np.minimum(1.0, (gaps.min() if gaps.size else np.inf) / np.sqrt(high))


@pytest.mark.parametrize("phi", NAMED, ids=IDS)
@pytest.mark.parametrize("q", [1e-2, 1.0, 30.0])
def test_at_rho_one_the_correlation_map_is_the_variance_map(phi: PiecewiseLinear, q: float) -> None:
    assert phi.cross_moment(1.0, q, q) == pytest.approx(float(exact_moments(phi, q).square), rel=1e-12)
    expected = q * float(exact_moments(phi, q).slope_square) if phi.is_continuous else math.inf
    assert phi.cross_moment_slope(1.0, q, q) == pytest.approx(expected, rel=1e-11)


def test_at_rho_one_on_random_activations() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        phi = random_activation(rng, smallest_clip=1e-5)
        q = random_variances(rng, phi, 4)
        square = [float(exact_moments(phi, float(value)).square) for value in q]
        judged = np.array(square) > 1e-280
        assert phi.cross_moment(1.0, q, q)[judged] == pytest.approx(np.array(square)[judged], rel=1e-9)


@pytest.mark.parametrize("phi", [crelu(1.0, 0.8), crelu(1.4, 0.01), shifted_relu(2.0), fatrelu(0.5)])
@pytest.mark.parametrize("rho", [0.999, 1 - 1e-5, 1 - 1e-9, -0.3, -0.999])
def test_near_the_ends_against_conditional_quadrature(phi: PiecewiseLinear, rho: float) -> None:
    # E[φ(u₁) E[φ(u₂) | u₁]] with both integrals in 25-digit arithmetic.
    assert phi.cross_moment(rho, 1.3, 1.3) == pytest.approx(_conditional_quadrature(phi, rho, 1.3), rel=1e-9)


def _conditional_quadrature(phi: PiecewiseLinear, rho: float, q: float) -> float:
    with mpmath.workdps(25):
        root, spread = mpmath.sqrt(q), mpmath.sqrt(1 - mpmath.mpf(rho) ** 2)

        def conditional(z: mpmath.mpf) -> mpmath.mpf:
            total = mpmath.mpf(0)
            for left, right, slope, offset in phi.segments():
                a, b = ((mpmath.mpf(end) / root - rho * z) / spread for end in (left, right))
                mass = (mpmath.erfc(a / mpmath.sqrt(2)) - mpmath.erfc(b / mpmath.sqrt(2))) / 2
                first = mpmath.npdf(a) - mpmath.npdf(b)
                total += slope * root * (rho * z * mass + spread * first) + offset * mass
            return total

        total = mpmath.mpf(0)
        for left, right, slope, offset in phi.segments():
            a, b = max(mpmath.mpf(left) / root, mpmath.mpf(-14)), min(mpmath.mpf(right) / root, mpmath.mpf(14))
            marks = {a, b}
            for kink in phi.kinks:
                centre = mpmath.mpf(kink) / root / rho
                marks |= {centre + step * spread for step in (-12, -6, -3, -1, 0, 1, 3, 6, 12)}
            marks |= {mpmath.mpf(step) for step in range(-12, 13, 3)}
            edges = sorted(mark for mark in marks if a <= mark <= b)
            if (slope or offset) and b > a:
                total += mpmath.quad(
                    lambda z, slope=slope, offset=offset: (slope * root * z + offset) * conditional(z) * mpmath.npdf(z),
                    edges,
                )
        return float(total)


def test_relu_has_the_arc_cosine_kernel() -> None:
    # Cho & Saul 2009: q/(2π) (sin θ + (π − θ) cos θ).
    theta = np.linspace(0.0, np.pi, 41)
    expected = 3.0 / (2 * np.pi) * (np.sin(theta) + (np.pi - theta) * np.cos(theta))
    assert relu().cross_moment(np.cos(theta), 3.0, 3.0) == pytest.approx(expected, rel=1e-11, abs=1e-16)
    assert relu().cross_moment_slope(np.cos(theta), 3.0, 3.0) == pytest.approx(
        3.0 * (np.pi - theta) / (2 * np.pi), rel=1e-12, abs=1e-15
    )
