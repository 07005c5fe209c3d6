"""Threshold, clip and sigmas against the paper's closed forms; phases and depth scales."""

import math

import numpy as np
import pytest
from scipy.special import erf, erfinv
from scipy.stats import norm

from hush.theory import (
    Regime,
    activation,
    chi_1,
    clip_from_slope,
    correlation_map,
    crelu,
    cst,
    edge_curve,
    edge_of_chaos,
    fatrelu,
    phase,
    phase_diagram,
    relu,
    shifted_relu,
    slope_and_curvature_of_clip,
    soft_threshold,
    threshold_from_sparsity,
    variance_map,
)
from tests.theory.oracles import exact_moments

SPARSITIES = [0.5, 0.6, 0.85, 0.99]


class TestThreshold:
    @pytest.mark.parametrize("s", SPARSITIES)
    @pytest.mark.parametrize("q", [0.3, 1.0, 5.0])
    def test_paper_appendix_f(self, s: float, q: float) -> None:
        assert threshold_from_sparsity("crelu", s, q) == pytest.approx(math.sqrt(q) * norm.ppf(s), abs=1e-15)
        assert threshold_from_sparsity("cst", s, q) == pytest.approx(math.sqrt(2 * q) * erfinv(s))

    @pytest.mark.parametrize("name", ["shifted_relu", "soft_threshold"])
    def test_it_gives_the_sparsity_asked_for(self, name: str) -> None:
        for s in (0.5, 0.9, 1 - 1e-9):
            assert activation(name, threshold_from_sparsity(name, s, 2.0)).sparsity(2.0) == pytest.approx(s)

    @pytest.mark.parametrize(("name", "s"), [("crelu", 0.49), ("crelu", 1.0), ("cst", -0.1), ("cst", math.nan)])
    def test_out_of_range(self, name: str, s: float) -> None:
        with pytest.raises(ValueError, match=rf"the sparsity of {name} lies in .*, got {s}"):
            threshold_from_sparsity(name, s)


class TestSigmas:
    @pytest.mark.parametrize("s", SPARSITIES)
    def test_unclipped_weight_variance_is_one_over_one_minus_s(self, s: float) -> None:
        for name in ("shifted_relu", "soft_threshold"):
            phi = activation(name, threshold_from_sparsity(name, s, 3.0))
            assert edge_of_chaos(phi, 3.0)[0] == pytest.approx(1.0 / (1.0 - s))

    @pytest.mark.parametrize("s", SPARSITIES)
    def test_clipped_weight_variance_is_that_of_appendix_f(self, s: float) -> None:
        q, m = 1.7, 1.1
        one = crelu(threshold_from_sparsity("crelu", s, q), m)
        expected = 2.0 / (erf(m / math.sqrt(2 * q) + erfinv(2 * s - 1)) - 2 * s + 1)
        assert edge_of_chaos(one, q)[0] == pytest.approx(expected)
        two = cst(threshold_from_sparsity("cst", s, q), m)
        assert edge_of_chaos(two, q)[0] == pytest.approx(1.0 / (erf(m / math.sqrt(2 * q) + erfinv(s)) - s))

    @pytest.mark.parametrize("phi", [relu(), shifted_relu(1.0), soft_threshold(0.5), crelu(1.0, 1.0), cst(0.3, 2.0)])
    def test_the_edge_is_the_edge(self, phi) -> None:
        w2, b2 = edge_of_chaos(phi, 1.3)
        assert chi_1(phi, 1.3, math.sqrt(w2)) == pytest.approx(1.0)
        assert variance_map(phi, 1.3, math.sqrt(w2), math.sqrt(b2)) == pytest.approx(1.3)

    def test_no_edge_is_explained(self) -> None:
        with pytest.raises(ValueError, match=r"fatrelu has no Edge of Chaos .* σ_b² would be -0.571 < 0"):
            edge_of_chaos(fatrelu(0.5), 1.0)
        with pytest.raises(ValueError, match=r"E\[φ′²\] = 0"):
            edge_of_chaos(shifted_relu(60.0), 1.0)
        with pytest.raises(ValueError, match="q_star must be positive and finite, got 0.0"):
            edge_of_chaos(relu(), 0.0)

    def test_curve(self) -> None:
        q = np.geomspace(0.1, 10.0, 7)
        sigma_w, sigma_b = edge_curve(crelu(1.0, 1.0), q)
        for i, value in enumerate(q):
            assert (sigma_w[i] ** 2, sigma_b[i] ** 2) == pytest.approx(edge_of_chaos(crelu(1.0, 1.0), value))
        assert np.all(np.isnan(edge_curve(fatrelu(0.5), q)[0]))


class TestClip:
    @pytest.mark.parametrize("name", ["crelu", "cst"])
    @pytest.mark.parametrize("v_prime", [0.01, 0.5, 0.9, 0.999])
    @pytest.mark.parametrize("q", [0.5, 4.0])
    def test_it_gives_the_slope_asked_for(self, name: str, v_prime: float, q: float) -> None:
        tau = threshold_from_sparsity(name, 0.85, q)
        m = clip_from_slope(name, tau, v_prime, q)
        # The paper's eq. for V′ of CReLU over that for χ₁, evaluated with erf.
        a, b = tau / math.sqrt(2 * q), (tau + m) / math.sqrt(2 * q)
        chi = 0.5 * (erf(b) - erf(a))
        assert 1.0 - m / math.sqrt(2 * math.pi * q) * math.exp(-(b**2)) / chi == pytest.approx(v_prime, rel=1e-9)

    def test_curves_over_the_clip(self) -> None:
        m = np.linspace(0.2, 4.0, 20)
        slopes, curvatures = slope_and_curvature_of_clip("cst", 1.0, m)
        assert slopes.shape == curvatures.shape == m.shape
        assert np.all(np.diff(slopes) > 0.0)  # paper, Figure 3: V′ rises with m, V″ falls and rises
        assert np.diff(curvatures)[0] < 0.0 < np.diff(curvatures)[5]

    @pytest.mark.parametrize("name", ["crelu", "cst"])
    @pytest.mark.parametrize("q_star", [0.3, 1.0, 5.0])
    @pytest.mark.parametrize("threshold", [0.0, 1.04, 6.0])
    def test_curves_are_those_of_the_variance_map(self, name: str, q_star: float, threshold: float) -> None:
        clips = np.array([1e-3, 0.1, 0.8, 3.0, 20.0])
        slopes, curvatures = slope_and_curvature_of_clip(name, threshold, clips, q_star)
        for m, slope, curvature in zip(clips, slopes, curvatures, strict=True):
            exact = exact_moments(activation(name, threshold, m), q_star)
            assert slope == pytest.approx(float(exact.slope / exact.slope_square), rel=1e-10)
            assert curvature == pytest.approx(float(exact.curvature / exact.slope_square), rel=1e-8)

    def test_a_threshold_that_nothing_passes(self) -> None:
        with pytest.raises(ValueError, match="at a threshold of 50 √q\\*: no σ_w brings χ₁ to 1"):
            slope_and_curvature_of_clip("crelu", 50.0, 1.0)

    @pytest.mark.parametrize("v_prime", [0.0, 1.0, -0.5, math.nan])
    def test_slope_out_of_range(self, v_prime: float) -> None:
        with pytest.raises(ValueError, match=f"strictly between 0 and 1, got {v_prime}"):
            clip_from_slope("crelu", 1.0, v_prime)

    def test_only_clipped_activations_have_one(self) -> None:
        with pytest.raises(ValueError, match="only crelu and cst have a clip, got 'soft_threshold'"):
            clip_from_slope("soft_threshold", 1.0, 0.5)
        with pytest.raises(ValueError, match="soft_threshold has no clip, got clip = 1.0; the clipped twin is cst"):
            activation("soft_threshold", 1.0, 1.0)
        with pytest.raises(ValueError, match="crelu needs a clip"):
            activation("crelu", 1.0)
        with pytest.raises(ValueError, match="unknown activation 'gelu'"):
            activation("gelu", 1.0)


class TestPhase:
    phi = crelu(1.0, 1.0)
    sigma_w, sigma_b = (math.sqrt(v) for v in edge_of_chaos(phi, 1.0))

    def test_regimes(self) -> None:
        edge = phase(self.phi, self.sigma_w, self.sigma_b)
        assert edge.regime is Regime.EDGE
        assert edge.gradient_depth == edge.correlation_depth == math.inf
        assert phase(self.phi, 0.9 * self.sigma_w, self.sigma_b).regime is Regime.ORDERED
        assert phase(self.phi, 1.1 * self.sigma_w, self.sigma_b).regime is Regime.CHAOTIC
        runaway = phase(shifted_relu(1.0), 4.0, 0.5)
        assert runaway.regime is Regime.DIVERGENT
        assert runaway.q_star is None
        assert "no fixed point that attracts" in str(runaway)

    def test_gradient_depth_is_that_of_chi(self) -> None:
        ordered = phase(self.phi, 0.9 * self.sigma_w, self.sigma_b)
        assert ordered.chi1 is not None
        assert ordered.gradient_depth == pytest.approx(-1.0 / math.log(ordered.chi1))

    def test_correlation_depth_is_how_fast_correlations_settle(self) -> None:
        # Iterate the map itself and fit its exponential.
        sigma_w = 1.15 * self.sigma_w
        chaotic = phase(self.phi, sigma_w, self.sigma_b)
        assert chaotic.q_star is not None
        rho, history = 0.1, []
        for _ in range(60):
            rho = correlation_map(self.phi, rho, chaotic.q_star, sigma_w, self.sigma_b)
            history.append(rho)
        distance = np.abs(np.diff(history))
        measured = -1.0 / np.polyfit(np.arange(30, 40), np.log(distance[30:40]), 1)[0]
        assert chaotic.correlation_depth == pytest.approx(measured, rel=1e-3)

    def test_dying_signal(self) -> None:
        dead = phase(shifted_relu(1.0), 1.0, 0.0)
        assert dead.regime is Regime.ORDERED
        assert dead.q_star == 0.0

    @pytest.mark.parametrize("phi", [cst(1.44, 1.53), shifted_relu(1.0), relu(), crelu(0.3, 2.0)])
    def test_diagram_agrees_with_phase(self, phi) -> None:
        sigma_w, sigma_b = np.linspace(0.5, 5.0, 7), np.linspace(0.0, 2.0, 5)
        diagram = phase_diagram(phi, sigma_w, sigma_b)
        for i, w in enumerate(sigma_w):
            for j, b in enumerate(sigma_b):
                chi = phase(phi, w, b).chi1
                assert diagram[i, j] == pytest.approx(math.inf if chi is None else chi, rel=1e-6, abs=1e-9)
