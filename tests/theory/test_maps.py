"""V, χ₁ and the correlation map R against exact moments, Monte Carlo, and their own laws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hush.theory import (
    PiecewiseLinear,
    chi_1,
    correlation_map,
    correlation_map_slope,
    covariance_map,
    covariance_map_slope,
    crelu,
    cst,
    edge_of_chaos,
    fatrelu,
    identity,
    relu,
    shifted_relu,
    soft_threshold,
    variance_map,
    variance_map_curvature,
    variance_map_slope,
)
from tests.theory.oracles import exact_moments
from tests.theory.samples import IDS, NAMED


@pytest.mark.parametrize("phi", [crelu(1.0, 0.8), cst(1.0, 1.2), fatrelu(0.5), shifted_relu(0.3)])
def test_covariance_map_matches_monte_carlo_at_unequal_variances(phi: PiecewiseLinear) -> None:
    rng = np.random.default_rng(5)
    z = rng.standard_normal((2, 1_000_000))
    rho, q_a, q_b = 0.6, 0.7, 1.9
    step = 1e-5
    ends = covariance_map(phi, np.array([rho - step, rho + step]), q_a, q_b, 1.3, 0.0)
    assert covariance_map_slope(phi, rho, q_a, q_b, 1.3) == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-6)
    products = phi(np.sqrt(q_a) * z[0]) * phi(np.sqrt(q_b) * (rho * z[0] + np.sqrt(1 - rho**2) * z[1]))
    expected = 2.0 * products.mean() + 0.25
    error = 2.0 * products.std() / np.sqrt(products.size)
    assert abs(covariance_map(phi, rho, q_a, q_b, math.sqrt(2.0), 0.5) - expected) < 5 * error


@pytest.mark.parametrize("phi", NAMED, ids=IDS)
def test_maps_are_the_moments_with_their_sigmas(phi: PiecewiseLinear) -> None:
    exact = exact_moments(phi, 1.3)
    assert variance_map(phi, 1.3, 1.7, 0.4) == pytest.approx(1.7**2 * float(exact.square) + 0.16)
    assert variance_map_slope(phi, 1.3, 1.7) == pytest.approx(1.7**2 * float(exact.slope))
    assert variance_map_curvature(phi, 1.3, 1.7) == pytest.approx(1.7**2 * float(exact.curvature), abs=1e-13)
    assert chi_1(phi, 1.3, 1.7) == pytest.approx(1.7**2 * float(exact.slope_square))


# --- laws ---

thresholds = st.floats(0.0, 4.0)
clips = st.floats(0.05, 10.0)
variances = st.floats(0.05, 20.0)
correlations = st.floats(-1.0, 1.0)
scales = st.floats(1e-3, 1e3)
families = st.one_of(
    st.builds(shifted_relu, thresholds),
    st.builds(soft_threshold, thresholds),
    st.builds(crelu, thresholds, clips),
    st.builds(cst, thresholds, clips),
)


@given(thresholds, clips, variances, scales, correlations)
def test_scale_is_free(tau: float, m: float, q: float, a: float, rho: float) -> None:
    # φ_{aτ,am}(ax) = aφ_{τ,m}(x): V scales, V′ and χ₁ stay, V″ shrinks, R stays.
    phi, scaled = cst(tau, m), cst(a * tau, a * m)
    assert scaled.second_moment(a**2 * q) == pytest.approx(a**2 * phi.second_moment(q), rel=1e-9)
    assert scaled.second_moment_slope(a**2 * q) == pytest.approx(phi.second_moment_slope(q), rel=1e-9)
    assert scaled.slope_moment(1, a**2 * q) == pytest.approx(phi.slope_moment(1, q), rel=1e-9)
    assert scaled.second_moment_curvature(a**2 * q) == pytest.approx(
        phi.second_moment_curvature(q) / a**2, rel=1e-8, abs=1e-12 / a**2
    )
    assert scaled.cross_moment(rho, a**2 * q, a**2 * q) == pytest.approx(
        a**2 * phi.cross_moment(rho, q, q), rel=1e-8, abs=1e-15 * a**2
    )


@given(families, variances, st.floats(1.0, 3.0))
def test_the_variance_map_is_monotone(phi: PiecewiseLinear, q: float, factor: float) -> None:
    # A factor of 1 + 2e-16 is less than the rounding of either.
    assert phi.second_moment(q * factor) >= phi.second_moment(q) * (1.0 - 1e-12)
    assert phi.second_moment_slope(q) >= 0.0


@given(families, variances)
@settings(max_examples=60)
def test_on_the_edge_of_chaos_one_is_a_fixed_point_with_unit_slope(phi: PiecewiseLinear, q: float) -> None:
    sigma_w, sigma_b = (math.sqrt(v) for v in edge_of_chaos(phi, q))
    assert correlation_map(phi, 1.0, q, sigma_w, sigma_b) == pytest.approx(1.0, rel=1e-10)
    assert correlation_map_slope(phi, 1.0, q, sigma_w) == pytest.approx(1.0, rel=1e-9)


@given(families, variances, st.floats(0.1, 3.0), st.floats(0.0, 2.0))
@settings(max_examples=60)
def test_at_zero_correlation_only_the_means_are_left(phi: PiecewiseLinear, q: float, w: float, b: float) -> None:
    expected = ((w * phi.mean(q)) ** 2 + b**2) / q
    assert correlation_map(phi, 0.0, q, w, b) == pytest.approx(expected, rel=1e-10, abs=1e-300)


@given(st.one_of(st.builds(soft_threshold, thresholds), st.builds(cst, thresholds, clips)), variances, correlations)
@settings(max_examples=60)
def test_an_odd_activation_without_bias_has_an_odd_map(phi: PiecewiseLinear, q: float, rho: float) -> None:
    assert correlation_map(phi, -rho, q, 1.5, 0.0) == pytest.approx(-correlation_map(phi, rho, q, 1.5, 0.0), rel=1e-9)


@given(families, variances, st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3, unique=True))
@settings(max_examples=60)
def test_the_map_is_convex_for_positive_correlations(phi: PiecewiseLinear, q: float, rhos: list[float]) -> None:
    # All coefficients of Mehler's expansion are squares, so R″ ≥ 0 on [0, 1].
    a, b, c = sorted(rhos)
    slopes = phi.cross_moment_slope(np.array([a, b, c]), q, q)
    assert slopes[0] <= slopes[1] * (1 + 1e-10) + 1e-300
    assert slopes[1] <= slopes[2] * (1 + 1e-10) + 1e-300


def test_the_identity_keeps_correlations() -> None:
    rho = np.linspace(-1, 1, 11)
    assert covariance_map(identity(), rho, 2.0, 8.0, 1.0, 0.0) == pytest.approx(4.0 * rho, abs=1e-15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: variance_map(relu(), 1.0, -1.0, 0.0), "sigma_w must be finite and not negative, got -1.0"),
        (lambda: variance_map(relu(), 1.0, 1.0, math.nan), "sigma_b must be finite and not negative, got nan"),
        (lambda: correlation_map(relu(), 1.1, 1.0, 1.0, 0.0), r"a correlation must lie in \[−1, 1\], got 1.1"),
        (lambda: correlation_map(relu(), [0.0, math.nan], 1.0, 1.0, 0.0), "got nan"),
        (lambda: covariance_map(relu(), 0.5, 0.0, 1.0, 1.0, 0.0), "the variances must be positive and finite, got 0.0"),
    ],
)
def test_bad_values_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
