"""PiecewiseLinear: values, validation, and every Gaussian integral against independent oracles."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from hush.theory import PiecewiseLinear, crelu, cst, fatrelu, hardtanh, identity, relu, shifted_relu, soft_threshold
from tests.theory.oracles import exact_moments, quadrature
from tests.theory.samples import IDS, NAMED, random_activation, random_variances


def test_moments_match_100_digit_arithmetic_on_20000_points() -> None:
    rng = np.random.default_rng(20240507)
    worst: dict[str, float] = {}
    points = 0
    while points < 20_000:
        phi = random_activation(rng, smallest_clip=1e-6)
        q = random_variances(rng, phi, 50)
        points += q.size
        ours = {
            "square": phi.second_moment(q),
            "slope": phi.second_moment_slope(q),
            "curvature": phi.second_moment_curvature(q),
            "slope_square": phi.slope_moment(1, q),
        }
        for i, value in enumerate(q):
            exact = exact_moments(phi, float(value))
            for name, array in ours.items():
                expected = getattr(exact, name)
                if abs(expected) > mpmath.mpf("1e-290"):
                    error = float(abs(mpmath.mpf(array[i]) - expected) / abs(expected))
                    worst[name] = max(worst.get(name, 0.0), error)
    assert max(worst.values()) <= 1e-10, worst


@pytest.mark.parametrize("phi", NAMED, ids=IDS)
@pytest.mark.parametrize("q", [0.05, 1.0, 7.3])
class TestAgainstQuadrature:
    """Closed form = kink-split quadrature."""

    @pytest.mark.parametrize("power", [1, 2, 3, 4, 5, 6])
    def test_moment(self, phi: PiecewiseLinear, q: float, power: int) -> None:
        expected = quadrature(lambda x: phi(x) ** power, phi, q)
        assert phi.moment(power, q) == pytest.approx(expected, rel=1e-10, abs=1e-13)

    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_slope_moment(self, phi: PiecewiseLinear, q: float, k: int) -> None:
        expected = quadrature(lambda x: phi.derivative(x) ** (2 * k), phi, q)
        assert phi.slope_moment(k, q) == pytest.approx(expected, rel=1e-10, abs=1e-14)

    def test_mean_slope(self, phi: PiecewiseLinear, q: float) -> None:
        assert phi.mean_slope(q) == pytest.approx(quadrature(phi.derivative, phi, q), rel=1e-10, abs=1e-14)

    def test_sparsity_and_saturation(self, phi: PiecewiseLinear, q: float) -> None:
        silent = quadrature(lambda x: float(phi(x) == 0.0 and x != 0.0), phi, q)
        flat = quadrature(lambda x: float(phi(x) != 0.0 and phi.derivative(x) == 0.0), phi, q)
        assert phi.sparsity(q) == pytest.approx(silent, rel=1e-10, abs=1e-14)
        assert phi.saturation(q) == pytest.approx(flat, rel=1e-10, abs=1e-14)

    def test_square_slope_moment(self, phi: PiecewiseLinear, q: float) -> None:
        expected = quadrature(lambda x: (phi(x) * phi.derivative(x)) ** 2, phi, q)
        assert phi.square_slope_moment(q) == pytest.approx(expected, rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("phi", NAMED, ids=IDS)
def test_moments_match_monte_carlo(phi: PiecewiseLinear) -> None:
    x = np.sqrt(1.7) * np.random.default_rng(1).standard_normal(400_000)
    squares = phi(x) ** 2
    assert abs(phi.second_moment(1.7) - squares.mean()) < 5 * squares.std() / np.sqrt(x.size) + 1e-12
    assert phi.sparsity(1.7) == pytest.approx(np.mean(phi(x) == 0.0), abs=5e-3)


@pytest.mark.parametrize("phi", NAMED, ids=IDS)
def test_limits_are_finite_and_quiet(phi: PiecewiseLinear) -> None:
    q = np.array([0.0, 1e-300, 1e-30, 1e-6, 1.0, 1e6, 1e30, 1e300])
    for values in (phi.second_moment(q), phi.mean(q), phi.mean_slope(q), phi.slope_moment(2, q)):
        assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(phi.second_moment_slope(q)[1:]))
    assert not np.any(np.isnan(phi.second_moment_slope(q)))
    assert not np.any(np.isnan(phi.second_moment_curvature(q)))
    assert np.all((phi.sparsity(q) >= 0.0) & (phi.sparsity(q) + phi.saturation(q) <= 1.0 + 1e-15))


class TestLimits:
    """The limits a user meets: q → 0 and ∞, τ = 0, m → 0 and ∞, thresholds 40 standard deviations out."""

    def test_vanishing_variance_leaves_everything_silent(self) -> None:
        phi = crelu(1.0, 1.0)
        assert phi.second_moment(0.0) == 0.0
        assert phi.sparsity(0.0) == 1.0
        assert phi.second_moment_slope(0.0) == 0.0

    def test_huge_variance_saturates_a_clipped_activation(self) -> None:
        assert cst(1.0, 2.0).second_moment(1e20) == pytest.approx(4.0)
        assert crelu(1.0, 2.0).saturation(1e20) == pytest.approx(0.5)

    def test_zero_threshold_is_relu_and_the_identity(self) -> None:
        q = np.geomspace(1e-6, 1e6, 9)
        assert shifted_relu(0.0).second_moment(q) == pytest.approx(relu().second_moment(q))
        assert soft_threshold(0.0).second_moment(q) == pytest.approx(identity().second_moment(q))
        assert cst(0.0, 1.5).second_moment(q) == pytest.approx(hardtanh(1.5).second_moment(q))

    def test_infinite_clip_is_the_unclipped_activation(self) -> None:
        assert crelu(0.7, math.inf) == shifted_relu(0.7)
        assert cst(0.7, math.inf) == soft_threshold(0.7)

    def test_a_large_clip_tends_to_the_unclipped_activation(self) -> None:
        assert crelu(0.7, 60.0).second_moment_curvature(1.0) == pytest.approx(
            shifted_relu(0.7).second_moment_curvature(1.0), rel=1e-13
        )

    def test_a_small_clip_counts_the_active_share(self) -> None:
        # φ ≈ m above τ: E φ² → m² P(x > τ).
        assert crelu(1.0, 1e-7).second_moment(1.0) == pytest.approx(1e-14 * stats.norm.sf(1.0), rel=1e-6)

    def test_tails_keep_their_relative_precision(self) -> None:
        phi = shifted_relu(37.0)
        exact = exact_moments(phi, 1.0)
        assert phi.second_moment(1.0) == pytest.approx(float(exact.square), rel=1e-12)
        assert phi.sparsity(1.0) == 1.0
        assert shifted_relu(40.0).second_moment(1.0) == 0.0


class TestValues:
    def test_pieces(self) -> None:
        phi = cst(1.0, 0.5)
        x = [-9.0, -1.5, -1.2, -1.0, 0.0, 1.0, 1.2, 1.5, 9.0]
        assert phi(x) == pytest.approx([-0.5, -0.5, -0.2, 0.0, 0.0, 0.0, 0.2, 0.5, 0.5])

    def test_derivative_is_flat_at_silent_and_saturated_ends(self) -> None:
        assert list(crelu(1.0, 0.5).derivative([0.0, 1.0, 1.2, 1.5, 2.0])) == [0.0, 0.0, 1.0, 0.0, 0.0]

    def test_infinities_and_nan(self) -> None:
        phi = crelu(1.0, 0.5)
        assert list(phi([-np.inf, np.inf])) == [0.0, 0.5]
        assert np.isnan(phi(np.nan))
        assert shifted_relu(1.0)(np.inf) == np.inf

    def test_a_jump_is_taken_from_the_left(self) -> None:
        assert list(fatrelu(0.5)([0.5, 0.5000001])) == [0.0, 0.5000001]

    def test_scalar_in_scalar_out(self) -> None:
        assert isinstance(relu()(1.0), float)
        assert isinstance(relu().second_moment(1.0), float)
        assert relu().second_moment(np.ones((2, 3))).shape == (2, 3)

    def test_equal_functions_are_equal_and_hash_alike(self) -> None:
        assert crelu(1, 2) == crelu(1.0, 2.0)
        assert len({crelu(1, 2), crelu(1.0, 2.0), crelu(1.0, 3.0)}) == 2


class TestValidation:
    """Bad input gets a sentence with the value."""

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: shifted_relu(-0.1), "threshold must be at least 0, got -0.1"),
            (lambda: soft_threshold(math.nan), "threshold must be at least 0, got nan"),
            (lambda: soft_threshold(math.inf), "threshold must be finite"),
            (lambda: crelu(1.0, 0.0), "clip must be positive, got 0.0"),
            (lambda: cst(1.0, -2.0), "clip must be positive, got -2.0"),
            (lambda: cst(1.0, math.nan), "clip must be positive, got nan"),
            (lambda: crelu(1e20, 1.0), "lost in rounding"),
            (lambda: hardtanh(0.0), "bound must be positive"),
            (lambda: PiecewiseLinear((1.0, 1.0), (0.0, 1.0, 0.0), (0.0, -1.0, 0.0)), "strictly increasing"),
            (lambda: PiecewiseLinear((2.0, 1.0), (0.0, 1.0, 0.0), (0.0, -1.0, 0.0)), "strictly increasing"),
            (lambda: PiecewiseLinear((1.0,), (0.0,), (0.0, 0.0)), "1 kinks need 2 slopes, got 1"),
            (lambda: PiecewiseLinear((math.nan,), (0.0, 1.0), (0.0, 0.0)), "kinks must be finite"),
            (lambda: relu().second_moment(-1.0), "q must be finite and not negative, got -1.0"),
            (lambda: relu().second_moment([1.0, math.nan]), "q must be finite and not negative, got nan"),
            (lambda: relu().moment(7, 1.0), "power must be 1, 2, …, 6, got 7"),
            (lambda: relu().slope_moment(0, 1.0), "k must be at least 1, got 0"),
        ],
    )
    def test_message(self, make, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make()
