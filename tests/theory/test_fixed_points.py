"""Fixed points of V and R: all of them, with the right stability."""

import math

import numpy as np
import pytest

from hush.theory import (
    PiecewiseLinear,
    Stability,
    activation,
    clip_from_slope,
    correlation_fixed_points,
    crelu,
    cst,
    edge_of_chaos,
    hardtanh,
    identity,
    leaky_relu,
    relu,
    shifted_relu,
    soft_threshold,
    threshold_from_sparsity,
    variance_fixed_points,
    variance_map,
)


def on_the_edge(name: str, sparsity: float, v_prime: float | None = None) -> tuple[PiecewiseLinear, float, float]:
    threshold = threshold_from_sparsity(name, sparsity)
    phi = activation(name, threshold, v_prime and clip_from_slope(name, threshold, v_prime))
    return phi, *(math.sqrt(v) for v in edge_of_chaos(phi, 1.0))


class TestVariance:
    def test_cst_at_85_percent_and_slope_09_has_three(self) -> None:
        points = variance_fixed_points(*on_the_edge("cst", 0.85, 0.9))
        assert [p.value for p in points] == pytest.approx([1.0, 1.2634, 5.34], rel=1e-3)
        assert [p.stability for p in points] == [Stability.STABLE, Stability.UNSTABLE, Stability.STABLE]
        assert points[0].slope == pytest.approx(0.9)

    def test_below_the_bifurcation_there_is_one(self) -> None:
        points = variance_fixed_points(*on_the_edge("cst", 0.85, 0.8))
        assert len(points) == 1
        assert points[0].stability is Stability.STABLE

    @pytest.mark.parametrize(("name", "sparsity"), [("shifted_relu", 0.7), ("soft_threshold", 0.5)])
    def test_unclipped_on_the_edge_is_stable_from_below_only(self, name: str, sparsity: float) -> None:
        phi, sigma_w, sigma_b = on_the_edge(name, sparsity)
        points = variance_fixed_points(phi, sigma_w, sigma_b)
        assert len(points) == 1
        assert points[0].value == pytest.approx(1.0, rel=1e-6)
        assert points[0].slope == pytest.approx(1.0)
        assert points[0].curvature is not None
        assert points[0].curvature > 0.0
        assert points[0].stability is Stability.STABLE_FROM_BELOW
        # And so it is: from below q comes up to it, from above it runs away.
        below, above = 0.9, 1.1
        for _ in range(2000):
            below = variance_map(phi, below, sigma_w, sigma_b)
            above = min(variance_map(phi, above, sigma_w, sigma_b), 1e9)
        assert below == pytest.approx(1.0, abs=1e-2)
        assert above == 1e9

    def test_relu_at_its_edge_is_a_continuum(self) -> None:
        points = variance_fixed_points(relu(), math.sqrt(2.0), 0.0)
        assert points.continuum
        assert len(points) == 0
        assert str(points) == "every q is a fixed point"

    def test_relu_with_a_bias_has_none(self) -> None:
        points = variance_fixed_points(relu(), math.sqrt(2.0), 0.1)
        assert not points.continuum
        assert str(points) == "no fixed point q"

    def test_an_affine_map_has_the_obvious_one(self) -> None:
        points = variance_fixed_points(leaky_relu(0.5), 1.0, 2.0)
        assert points[0].value == pytest.approx(4.0 / (1.0 - 0.625))

    def test_hardtanh(self) -> None:
        assert len(variance_fixed_points(hardtanh(1.0), 1.0, 0.0)) == 0
        (point,) = variance_fixed_points(hardtanh(1.0), 1.5, 0.3)
        assert variance_map(hardtanh(1.0), point.value, 1.5, 0.3) == pytest.approx(point.value)

    @pytest.mark.parametrize("seed", range(40))
    def test_brute_force_finds_no_others(self, seed: int) -> None:
        # A dense scan of sign changes of V(q) − q, on maps with zero to three fixed points.
        rng = np.random.default_rng(seed)
        phi = cst(rng.uniform(0.2, 2.0), rng.uniform(0.3, 3.0))
        sigma_w, sigma_b = rng.uniform(0.5, 4.0), rng.choice([0.0, rng.uniform(0.0, 1.5)])
        q = np.geomspace(1e-3, 1e4, 200_000)
        gap = variance_map(phi, q, sigma_w, sigma_b) - q
        crossings = q[:-1][np.sign(gap[:-1]) != np.sign(gap[1:])]
        found = [p.value for p in variance_fixed_points(phi, sigma_w, sigma_b)]
        assert found == pytest.approx(list(crossings), rel=2e-4)

    @pytest.mark.parametrize("a", [1e-3, 1e3])
    def test_scale_is_free(self, a: float) -> None:
        points = variance_fixed_points(crelu(a * 1.0, a * 1.2), 2.2, a * 0.5)
        reference = variance_fixed_points(crelu(1.0, 1.2), 2.2, 0.5)
        assert [p.value for p in points] == pytest.approx([a**2 * p.value for p in reference])


class TestCorrelation:
    @pytest.mark.parametrize(("name", "v_prime"), [("crelu", 0.7), ("cst", 0.9), ("shifted_relu", None)])
    def test_on_the_edge_one_is_the_only_and_stable(self, name: str, v_prime: float | None) -> None:
        phi, sigma_w, sigma_b = on_the_edge(name, 0.85, v_prime)
        (point,) = correlation_fixed_points(phi, 1.0, sigma_w, sigma_b)
        assert point.value == 1.0
        assert point.slope == pytest.approx(1.0)
        assert point.stability is Stability.STABLE

    def test_in_the_chaotic_phase_a_second_one_attracts(self) -> None:
        phi = cst(0.5, 1.0)
        q_star = variance_fixed_points(phi, 3.0, 0.4)[-1].value
        points = correlation_fixed_points(phi, q_star, 3.0, 0.4)
        assert [p.stability for p in points] == [Stability.STABLE, Stability.UNSTABLE]
        assert 0.0 < points[0].value < 1.0
        assert points[-1].value == 1.0

    def test_an_odd_activation_without_bias_has_three(self) -> None:
        phi = cst(0.5, 1.0)
        q_star = variance_fixed_points(phi, 3.0, 0.0)[-1].value
        points = correlation_fixed_points(phi, q_star, 3.0, 0.0)
        assert [p.value for p in points] == pytest.approx([-1.0, 0.0, 1.0], abs=1e-9)

    def test_the_identity_is_a_continuum(self) -> None:
        assert correlation_fixed_points(identity(), 1.0, 1.0, 0.0).continuum

    def test_a_variance_that_is_no_fixed_point_is_refused(self) -> None:
        with pytest.raises(ValueError, match="q_star = 2.0 is no fixed point of the variance map"):
            correlation_fixed_points(soft_threshold(0.5), 2.0, 1.0, 0.1)


def test_fixed_points_print_and_are_found_again() -> None:
    points = variance_fixed_points(*on_the_edge("cst", 0.85, 0.9))
    assert str(points).startswith("q = 1 (stable, slope 0.9); 1.263 (unstable")
    assert len(points.stable) == 2
    near = points.near(1.0)
    assert near is not None
    assert near.stability is Stability.STABLE
    assert points.near(2.0) is None
    assert variance_fixed_points(shifted_relu(1.0), 0.5, 0.0).near(1.0) is None
