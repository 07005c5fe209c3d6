"""Smooth against mpmath quadrature and double integrals, and a kinked one against the closed forms."""

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from scipy import integrate

from hush.theory import (
    Chain,
    Smooth,
    chi_1,
    correlation_fixed_points,
    crelu,
    design,
    edge_of_chaos,
    finite_width,
    gelu,
    phase,
    silu,
    tanh,
    variance_fixed_points,
)


def _silu_slope(x: mpmath.mpf) -> mpmath.mpf:
    share = 1 / (1 + mpmath.exp(-x))
    return share + x * share * (1 - share)


# φ, and φ and φ′ in mpmath
CASES = {
    "tanh": (tanh(), mpmath.tanh, lambda x: mpmath.sech(x) ** 2),
    "gelu": (gelu(), lambda x: x * mpmath.ncdf(x), lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x)),
    "silu": (silu(), lambda x: x / (1 + mpmath.exp(-x)), _silu_slope),
}
each = pytest.mark.parametrize("name", CASES)


def expect(function: Callable[[mpmath.mpf, mpmath.mpf], mpmath.mpf], q: float) -> mpmath.mpf:
    """E[function(x, z)], x = √q z, in 20 digits; cut where φ bends."""
    with mpmath.workdps(20):
        root = mpmath.sqrt(q)
        bends = [s * mpmath.mpf(4) ** j / root for s in (-1, 1) for j in range(-1, 5)]
        marks = sorted({*map(mpmath.mpf, range(-12, 13, 3)), *(bend for bend in bends if abs(bend) < 12)})
        return mpmath.quad(lambda z: function(root * z, z) * mpmath.npdf(z), marks)


@each
@pytest.mark.parametrize("q", [0.02, 1.0, 400.0])
def test_moments_match_mpmath(name: str, q: float) -> None:
    phi, exact, slope = CASES[name]
    expected = {
        phi.mean(q): expect(lambda x, z: exact(x), q),
        phi.second_moment(q): expect(lambda x, z: exact(x) ** 2, q),
        phi.moment(6, q): expect(lambda x, z: exact(x) ** 6, q),
        phi.slope_moment(1, q): expect(lambda x, z: slope(x) ** 2, q),
        phi.slope_moment(2, q): expect(lambda x, z: slope(x) ** 4, q),
        phi.second_moment_slope(q): expect(lambda x, z: exact(x) * slope(x) * x, q) / q,
        phi.second_moment_curvature(q): expect(lambda x, z: exact(x) * slope(x) * x * (z * z - 3), q) / (2 * q * q),
        phi.square_slope_moment(q): expect(lambda x, z: (exact(x) * slope(x)) ** 2, q),
        phi.input_slope_moment(q): expect(lambda x, z: (x * slope(x)) ** 2, q),
    }
    for ours, value in expected.items():
        assert ours == pytest.approx(float(value), rel=1e-10, abs=1e-15)
    assert phi.error_estimate(q) < 1e-13


@pytest.mark.parametrize(("rho", "q_a", "q_b"), [(0.7, 1.0, 1.0), (-0.9, 0.5, 2.0), (0.98, 60.0, 60.0)])
def test_cross_moment_matches_a_double_integral(rho: float, q_a: float, q_b: float) -> None:
    # The last pair is where the expansion does not suffice and the implementation integrates twice itself.
    a, b, spread = np.sqrt(q_a), np.sqrt(q_b), np.sqrt(1.0 - rho**2)

    def integrand(e: float, z: float) -> float:
        return np.tanh(a * z) * np.tanh(b * (rho * z + spread * e)) * np.exp(-0.5 * (z * z + e * e)) / (2.0 * np.pi)

    expected = 0.0
    for low, high in ((-9.0, 0.0), (0.0, 9.0)):
        # Cut along the line where the second tanh turns.
        for ends in ((lambda z: -9.0, lambda z: np.clip(-rho * z / spread, -9, 9)),
                     (lambda z: np.clip(-rho * z / spread, -9, 9), lambda z: 9.0)):  # fmt: skip
            expected += integrate.dblquad(integrand, low, high, *ends, epsabs=1e-10, epsrel=1e-9)[0]
    assert tanh().cross_moment(rho, q_a, q_b) == pytest.approx(expected, rel=1e-7)


@each
@pytest.mark.parametrize("q", [0.01, 1.0, 30.0, 1e5])
def test_at_rho_one_it_is_the_second_moment(name: str, q: float) -> None:
    phi = CASES[name][0]
    assert phi.cross_moment(1.0, q, q) == pytest.approx(phi.second_moment(q), rel=1e-11)
    assert phi.cross_moment_slope(1.0, q, q) == pytest.approx(q * phi.slope_moment(1, q), rel=1e-10)


@each
def test_the_slope_is_the_derivative_of_the_cross_moment(name: str) -> None:
    phi, step = CASES[name][0], 1e-5
    above, below = phi.cross_moment(np.array([0.4 + step, 0.4 - step]), 1.3, 0.6)
    assert phi.cross_moment_slope(0.4, 1.3, 0.6) == pytest.approx((above - below) / (2 * step), rel=1e-7)


def _clipped(x: np.ndarray) -> np.ndarray:
    return np.clip(x - 1.0, 0.0, 0.8)


@pytest.mark.parametrize("q", [1e-2, 1.0, 50.0])
def test_a_kinked_function_agrees_with_the_closed_forms(q: float) -> None:
    exact = crelu(1.0, 0.8)
    phi = Smooth(_clipped, kinks=(1.0, 1.8), flat=((-np.inf, 1.0), (1.8, np.inf)), limit=0.8)
    assert phi.second_moment(q) == pytest.approx(exact.second_moment(q), rel=1e-11, abs=1e-25)
    # Without a derivative of its own, φ′ comes from differences.
    assert phi.slope_moment(1, q) == pytest.approx(exact.slope_moment(1, q), rel=1e-6, abs=1e-20)
    assert phi.sparsity(q) == pytest.approx(exact.sparsity(q), rel=1e-13)
    assert phi.saturation(q) == pytest.approx(exact.saturation(q), rel=1e-9, abs=1e-16)
    assert phi.cross_moment(0.6, q, q) == pytest.approx(exact.cross_moment(0.6, q, q), rel=1e-6, abs=1e-20)
    assert phi.plateaus == pytest.approx(exact.plateaus)


def test_the_error_estimate_sees_a_kink_that_was_not_named() -> None:
    hidden = Smooth(lambda x: np.maximum(x - 0.37, 0.0), lambda x: (x > 0.37).astype(float))
    named = Smooth(lambda x: np.maximum(x - 0.37, 0.0), lambda x: (x > 0.37).astype(float), kinks=(0.37,))
    assert named.error_estimate(1.0) < 1e-13
    assert hidden.error_estimate(1.0) > 1e-6
    assert hidden.second_moment(1.0) == pytest.approx(named.second_moment(1.0), rel=10 * hidden.error_estimate(1.0))


class TestTheory:
    """What is written for the protocol works for a smooth φ."""

    def test_the_edge_of_chaos_of_tanh(self) -> None:
        w2, b2 = edge_of_chaos(tanh(), 0.5)
        sigma_w, sigma_b = w2**0.5, b2**0.5
        assert chi_1(tanh(), 0.5, sigma_w) == pytest.approx(1.0)
        (point,) = variance_fixed_points(tanh(), sigma_w, sigma_b)
        assert point.value == pytest.approx(0.5)
        assert [p.value for p in correlation_fixed_points(tanh(), 0.5, sigma_w, sigma_b)] == [1.0]

    def test_a_small_fixed_point_is_found(self) -> None:
        # tanh x ≈ x − x³/3: V(q) ≈ σ_w²(q − 2q²), and so q* ≈ (1 − 1/σ_w²)/2.
        (point,) = variance_fixed_points(tanh(), 1.0005, 0.0)
        assert point.value == pytest.approx(0.0005, rel=0.01)

    def test_phases(self) -> None:
        assert "ordered" in str(phase(gelu(), 1.0, 0.1))
        assert "divergent" in str(phase(gelu(), 2.5, 0.1))

    def test_finite_width_against_real_networks(self) -> None:
        w2, b2 = edge_of_chaos(tanh(), 0.5)
        block, width, depth, rng = Chain(tanh(), w2**0.5, b2**0.5), 60, 12, np.random.default_rng(3)
        gains = []
        for _ in range(300):
            h = np.sqrt(0.5) * rng.standard_normal(width)
            hs, weights = [h], []
            for _ in range(depth - 1):
                weights.append(block.sigma_w / np.sqrt(width) * rng.standard_normal((width, width)))
                hs.append(weights[-1] @ np.tanh(hs[-1]) + block.sigma_b * rng.standard_normal(width))
            delta = rng.standard_normal(width) / np.cosh(hs[-1]) ** 2
            last = delta @ delta
            for h, weight in zip(reversed(hs[:-1]), reversed(weights), strict=True):
                delta = (weight.T @ delta) / np.cosh(h) ** 2
            gains.append(np.log10(delta @ delta / last))
        predicted = finite_width(block, width=width, depth=depth, q_start=0.5)
        for level in (0.1, 0.5, 0.9):
            assert abs(np.mean(np.array(gains) < predicted.gain_log10[level]) - level) < 4 * np.sqrt(0.25 / 300)

    def test_design_has_no_threshold_to_choose(self) -> None:
        with pytest.raises(
            ValueError,
            match="tanh has no threshold to choose, its share of zeros is 0; leave the sparsity out, got 0.5",
        ):
            design("tanh", 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Smooth(np.tanh, kinks=(1.0, 1.0)), "kinks must be finite and strictly increasing"),
        (lambda: Smooth(np.tanh, scale=0.0), "scale must be positive and finite, got 0.0"),
        (lambda: Smooth(np.tanh, limit=-1.0), "limit must be positive, got -1.0"),
        (lambda: Smooth(lambda x: (x > 0.5) * 1.0, name="step", kinks=(0.5,)), "step jumps at 0.5, from 0 to 1"),
        (lambda: tanh().second_moment(-1.0), "q must be finite and not negative, got -1.0"),
        (lambda: tanh().moment(7, 1.0), "power must be 1, 2, …, 6, got 7"),
        (lambda: tanh().slope_moment(4, 1.0), "k must be 1, 2 or 3, got 4"),
        (lambda: tanh().cross_moment(1.5, 1.0, 1.0), r"must lie in \[−1, 1\], got 1.5"),
        (lambda: tanh().cross_moment(0.5, 0.0, 1.0), "must be positive and finite, got 0.0"),
    ],
)
def test_bad_values(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_equal_functions_are_equal() -> None:
    assert gelu() == gelu()
    assert len({gelu(), gelu(), silu()}) == 2
