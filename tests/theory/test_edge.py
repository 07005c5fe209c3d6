"""σ_w and σ_b on the Edge of Chaos against the paper's closed forms."""

import math

import numpy as np
import pytest
from scipy.special import erf, erfinv

from hush.theory import (
    activation,
    chi_1,
    crelu,
    cst,
    edge_curve,
    edge_of_chaos,
    fatrelu,
    relu,
    shifted_relu,
    soft_threshold,
    threshold_from_sparsity,
    variance_map,
)

SPARSITIES = [0.5, 0.6, 0.85, 0.99]


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
