"""The clip and its slope against the paper's closed forms and 100-digit moments."""

import math

import numpy as np
import pytest
from scipy.special import erf

from hush.theory import (
    activation,
    clip_from_slope,
    slope_and_curvature_of_clip,
    threshold_from_sparsity,
)
from tests.theory.oracles import exact_moments


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
        with pytest.raises(ValueError, match="relative_cst have a clip, got 'soft_threshold'"):
            clip_from_slope("soft_threshold", 1.0, 0.5)
        with pytest.raises(ValueError, match="soft_threshold has no clip, got clip = 1.0; the clipped twin is cst"):
            activation("soft_threshold", 1.0, 1.0)
        with pytest.raises(ValueError, match="crelu needs a clip"):
            activation("crelu", 1.0)
        with pytest.raises(ValueError, match="unknown activation 'gelu'"):
            activation("gelu", 1.0)
