"""Dead units against simulation and against 25-digit quadrature."""

import mpmath
import numpy as np
import pytest

from hush.theory import PiecewiseLinear, crelu, cst, dead_units, leaky_relu, shifted_relu


@pytest.mark.parametrize("phi", [crelu(1.0, 1.0), cst(1.2, 0.8), shifted_relu(0.5)], ids=lambda phi: phi.name)
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
def test_dead_units_against_simulation(phi, rho: float) -> None:
    rng = np.random.default_rng(2)
    units, inputs, q = 40_000, 6, 1.3
    shared, own = rng.standard_normal((units, 1)), rng.standard_normal((units, inputs))
    h = np.sqrt(q) * (np.sqrt(rho) * shared + np.sqrt(1 - rho) * own)
    dead = (phi(h) == 0).all(1).mean()
    assert abs(float(dead_units(phi, np.array(q), np.array(rho), inputs)) - dead) < 0.01


def exactly(phi: PiecewiseLinear, q: float, rho: float, inputs: int) -> float:
    """The integral in 25 digits, cut where P(silent) turns."""
    with mpmath.workdps(25):
        shared, own = mpmath.sqrt(mpmath.mpf(q) * rho), mpmath.sqrt(mpmath.mpf(q) * (1 - mpmath.mpf(rho)))

        def silent(z: mpmath.mpf) -> mpmath.mpf:
            total = mpmath.mpf(0)
            for left, right, slope, offset in phi.segments():
                if slope == 0.0 and offset == 0.0:
                    below = 0 if left == -np.inf else mpmath.ncdf((left - shared * z) / own)
                    total += mpmath.ncdf((right - shared * z) / own) - below
            return total

        marks = {mpmath.mpf(k) for k in range(-12, 13, 3)}
        for kink in phi.kinks:
            marks |= {(kink + k * own) / shared for k in (-12, -7, -5, -3, -1, 0, 1, 3, 5, 7, 12)}
        edges = sorted(mark for mark in marks if abs(mark) <= 12)
        return float(mpmath.quad(lambda z: silent(z) ** inputs * mpmath.npdf(z), edges))


@pytest.mark.parametrize("phi", [crelu(1.0364, 1.2), cst(1.44, 1.0)], ids=lambda phi: phi.name)
@pytest.mark.parametrize("rho", [1e-6, 0.5, 0.995, 1 - 1e-6, 1 - 1e-9])
def test_dead_units_to_rounding_up_to_correlations_of_one(phi: PiecewiseLinear, rho: float) -> None:
    for inputs in (2, 1000):
        ours = float(dead_units(phi, np.array(1.3), np.array(rho), inputs))
        assert ours == pytest.approx(exactly(phi, 1.3, rho, inputs), rel=1e-12, abs=1e-30)


def test_at_the_ends_of_the_range() -> None:
    phi = crelu(1.0364, 1.2)
    sparsity = phi.sparsity(1.3)
    found = dead_units(phi, np.array([1.3, 1.3, 1.3]), np.array([1.0, 0.0, -0.2]), 8)
    assert found == pytest.approx([sparsity, sparsity**8, sparsity**8])
    assert dead_units(leaky_relu(0.1), np.array(1.0), np.array(0.5), 8) == 0.0
