"""Thresholds in units of the layer's own size: every integral against quadrature, and V is a straight line."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from hush.theory import (
    Relative,
    crelu,
    cst,
    edge_of_chaos,
    entry_of,
    relu,
    shifted_relu,
    soft_threshold,
    variance_fixed_points,
    variance_map,
    variance_map_curvature,
    variance_map_slope,
)

CASES = [shifted_relu(1.0364), crelu(1.0364, 1.2), soft_threshold(1.44), cst(1.44, 0.9)]
IDS = [psi.name for psi in CASES]


def _expect(function, psi):
    edges = sorted({-12.0, *(k for k in psi.kinks), 12.0})
    pieces = [integrate.quad(lambda z: function(z) * norm.pdf(z), a, b)[0] for a, b in pairwise(edges)]
    return sum(pieces)


@pytest.mark.parametrize("q", [0.03, 1.0, 70.0])
@pytest.mark.parametrize("psi", CASES, ids=IDS)
def test_moments_are_those_of_s_psi_of_h_over_s(psi, q):
    phi, s = Relative(psi), math.sqrt(q)
    for power in (1, 2, 3, 4):
        assert phi.moment(power, q) == pytest.approx(
            _expect(lambda z, p=power: (s * psi(z)) ** p, psi), rel=1e-9, abs=1e-12
        )
    assert phi.mean(q) == pytest.approx(_expect(lambda z: s * psi(z), psi), rel=1e-9, abs=1e-12)
    assert phi.second_moment(q) == pytest.approx(_expect(lambda z: (s * psi(z)) ** 2, psi), rel=1e-9)
    assert phi.slope_moment(1, q) == pytest.approx(_expect(lambda z: psi.derivative(z) ** 2, psi), rel=1e-7)
    assert phi.mean_slope(q) == pytest.approx(_expect(psi.derivative, psi), rel=1e-7)
    squares = _expect(lambda z: (s * psi(z) * psi.derivative(z)) ** 2, psi)
    assert phi.square_slope_moment(q) == pytest.approx(squares, rel=1e-7)
    assert phi.input_slope_moment(q) == pytest.approx(
        _expect(lambda z: (s * z * psi.derivative(z)) ** 2, psi), rel=1e-7
    )
    assert phi.sparsity(q) == pytest.approx(_expect(lambda z: float(psi(z) == 0.0), psi), rel=1e-6)
    assert phi.second_moment_curvature(q) == 0.0


@pytest.mark.parametrize("psi", CASES, ids=IDS)
def test_two_inputs_of_different_size(psi):
    phi, rho, q_a, q_b = Relative(psi), 0.6, 0.4, 3.0
    rng = np.random.default_rng(0)
    z, e = rng.standard_normal((2, 2_000_000))
    other = rho * z + math.sqrt(1 - rho**2) * e
    sample = math.sqrt(q_a * q_b) * psi(z) * psi(other)
    assert phi.cross_moment(rho, q_a, q_b) == pytest.approx(sample.mean(), abs=5 * sample.std() / math.sqrt(z.size))
    step = 1e-5
    slope = (phi.cross_moment(rho + step, q_a, q_b) - phi.cross_moment(rho - step, q_a, q_b)) / (2 * step)
    assert phi.cross_moment_slope(rho, q_a, q_b) == pytest.approx(slope, rel=1e-6)
    assert phi.cross_moment_and_slope(rho, q_a, q_b) == pytest.approx(
        (phi.cross_moment(rho, q_a, q_b), phi.cross_moment_slope(rho, q_a, q_b))
    )
    assert phi.cross_moment(np.array([0.1, 0.9]), 2.0, 2.0).shape == (2,)


@pytest.mark.parametrize("q_star", [0.5, 1.0, 9.0])
@pytest.mark.parametrize("psi", CASES, ids=IDS)
def test_on_the_edge_the_map_is_a_line_with_one_fixed_point(psi, q_star):
    phi = Relative(psi)
    w2, b2 = edge_of_chaos(phi, q_star)
    sigma_w, sigma_b = math.sqrt(w2), math.sqrt(b2)
    slope = psi.second_moment(1.0) / psi.slope_moment(1, 1.0)
    assert 0.0 < slope < 1.0
    for q in (1e-3, 1.0, 40.0):
        assert variance_map(phi, q, sigma_w, sigma_b) == pytest.approx(q_star + slope * (q - q_star))
        assert variance_map_slope(phi, q, sigma_w) == pytest.approx(slope)
        assert variance_map_curvature(phi, q, sigma_w) == 0.0
    (point,) = variance_fixed_points(phi, sigma_w, sigma_b)
    assert point.value == pytest.approx(q_star)
    assert point.slope == pytest.approx(slope)
    assert point.stability.value == "stable"


def test_the_slope_on_the_edge_at_85_percent():
    # One-sided, τ = Φ⁻¹(0.85): E[(z − τ)₊²]/0.15.
    tau = norm.ppf(0.85)
    expected = ((1 + tau**2) * 0.15 - tau * norm.pdf(tau)) / 0.15
    phi = Relative(shifted_relu(tau))
    assert variance_map_slope(phi, 1.0, math.sqrt(1 / 0.15)) == pytest.approx(expected)
    assert expected == pytest.approx(0.463, abs=0.001)


def test_it_is_homogeneous_and_named():
    phi = entry_of("relative_crelu").construct(1.0, 2.0)
    assert phi == Relative(crelu(1.0, 2.0))
    assert phi.is_homogeneous
    assert not phi.is_odd
    assert entry_of("relative_cst").construct(1.0, 2.0).is_odd
    assert phi.bound() == math.inf
    assert phi.scales == ()
    assert "relative" in phi.name
    assert Relative(relu()).second_moment(3.0) == pytest.approx(relu().second_moment(3.0))
