"""Phases and depth scales."""

import math

import numpy as np
import pytest

from hush.theory import (
    Regime,
    correlation_map,
    crelu,
    cst,
    edge_of_chaos,
    phase,
    phase_diagram,
    relu,
    shifted_relu,
)


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
