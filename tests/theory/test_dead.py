"""Dead units against simulation and against 30-digit quadrature."""

import numpy as np
import pytest

import hush
from hush.theory import (
    crelu,
    cst,
    dead_units,
    shifted_relu,
)

DESIGN = hush.design("crelu", 0.85, v_prime=0.7)
CHAIN = (DESIGN.phi(), DESIGN.sigma_w, DESIGN.sigma_b)


@pytest.mark.parametrize("phi", [crelu(1.0, 1.0), cst(1.2, 0.8), shifted_relu(0.5)], ids=lambda phi: phi.name)
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
def test_dead_units_against_simulation(phi, rho: float) -> None:
    rng = np.random.default_rng(2)
    units, inputs, q = 40_000, 6, 1.3
    shared, own = rng.standard_normal((units, 1)), rng.standard_normal((units, inputs))
    h = np.sqrt(q) * (np.sqrt(rho) * shared + np.sqrt(1 - rho) * own)
    dead = (phi(h) == 0).all(1).mean()
    assert abs(float(dead_units(phi, np.array(q), np.array(rho), inputs)) - dead) < 0.01
