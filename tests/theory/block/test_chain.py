"""The plain chain against drawn units, and against the functions that build one."""

import math

import numpy as np
import pytest

from hush.theory import (
    IMAGE_NORMS,
    Chain,
    bands,
    correlation_fixed_points,
    crelu,
    cst,
    finite_width,
    phase,
    shifted_relu,
    tanh,
    variance_fixed_points,
    variance_map,
)

BLOCK = Chain(crelu(1.0, 1.2), 2.5, 0.6)


@pytest.mark.parametrize("phi", [crelu(1.0, 1.2), cst(0.8, 1.0), shifted_relu(0.7), tanh()], ids=lambda phi: phi.name)
@pytest.mark.parametrize("positions", [1, 16])
def test_noise_against_drawn_units(phi, positions: int) -> None:
    # Means, variances and correlation of both averages, over 40,000 layers of 50 units; g is drawn for each position.
    block, width, k, layers = Chain(phi, 1.7, 0.4, positions), 50, 1.3, 40_000
    rng = np.random.default_rng(0)
    h = math.sqrt(k) * rng.standard_normal((layers, width))
    # The mean of g² over the positions is χ² with as many degrees of freedom over that number.
    g2 = rng.chisquare(positions, (layers, width)) / positions
    following = 1.7**2 * (phi(h) ** 2).mean(1) + 0.4**2
    gain = 1.7**2 * (phi.derivative(h) ** 2 * g2).mean(1)
    noise = block.noise(width, np.array([k]))
    error = following.std() / math.sqrt(layers)
    assert abs(noise.mean[0] - following.mean()) < 5 * error
    assert noise.deviation[0] == pytest.approx(following.std(), rel=0.03)
    assert noise.skewness[0] == pytest.approx(
        ((following - following.mean()) ** 3).mean() / following.std() ** 3, abs=0.1
    )
    assert noise.gain_variance[0] == pytest.approx(gain.var() / gain.mean() ** 2, rel=0.05)
    assert noise.shared[0] == pytest.approx(np.corrcoef(following, gain)[0, 1], abs=0.03)
    # The rest of the mean gain is the weights' memory of the forward pass, of order 1/width, which g knows nothing of.
    assert 10.0 ** noise.gain_log10[0] == pytest.approx(gain.mean(), rel=10.0 / width)


def test_the_maps_are_those_of_the_functions() -> None:
    assert BLOCK.variance(1.3) == variance_map(BLOCK.phi, 1.3, 2.5, 0.6)
    assert BLOCK.preactivation_variance(1.3) == 1.3
    assert BLOCK.covariance(1.0, 1.3, 1.3) == pytest.approx(BLOCK.variance(1.3))
    assert BLOCK.sparsity(1.0) == BLOCK.phi.sparsity(1.0)
    assert BLOCK.saturation(1.0) == BLOCK.phi.saturation(1.0)
    low, high = BLOCK.reachable()
    assert (low, high) == pytest.approx((0.36, 6.25 * 1.44 + 0.36))


def test_pairs_are_averages_over_the_units() -> None:
    rng = np.random.default_rng(1)
    h_a, h_b = rng.standard_normal((2, 3, 200_000))
    p_a, p_b, covariance = BLOCK.propagate_pairs(h_a, h_b)
    assert p_a == pytest.approx(np.full(3, BLOCK.variance(1.0)), rel=0.02)
    assert p_b == pytest.approx(np.full(3, BLOCK.variance(1.0)), rel=0.02)
    assert covariance == pytest.approx(np.full(3, BLOCK.covariance(0.0, 1.0, 1.0)), rel=0.02)


def test_functions_take_a_block_in_the_place_of_an_activation() -> None:
    of = (BLOCK.phi, 2.5, 0.6)
    assert variance_fixed_points(BLOCK) == variance_fixed_points(*of)
    q = variance_fixed_points(BLOCK).stable[0].value
    assert correlation_fixed_points(BLOCK, q) == correlation_fixed_points(BLOCK.phi, q, 2.5, 0.6)
    assert phase(BLOCK) == phase(*of)
    assert finite_width(BLOCK, width=50, depth=5) == finite_width(*of, 50, 5)
    options = {"q_start": 1.0, "norms": IMAGE_NORMS}
    assert bands(BLOCK, width=50, depth=5, **options) == bands(*of, 50, 5, **options)
    several = Chain(BLOCK.phi, 2.5, 0.6, positions=9)
    assert finite_width(several, width=50, depth=5) == finite_width(*of, 50, 5, positions=9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Chain(BLOCK.phi, -1.0, 0.0), "sigma_w must be finite and not negative, got -1.0"),
        (lambda: Chain(BLOCK.phi, 1.0, math.nan), "sigma_b must be finite and not negative, got nan"),
        (lambda: Chain(BLOCK.phi, 1.0, 0.0, positions=0), "positions must be a whole number of at least 1, got 0"),
        (lambda: variance_fixed_points(BLOCK, 1.0, 0.0), "a block brings its own sigma_w, sigma_b and positions"),
        (
            lambda: variance_fixed_points(BLOCK.phi),
            "an activation needs sigma_w and sigma_b beside it, got None and None",
        ),
        (lambda: finite_width(BLOCK, width=50, depth=5, positions=3), "a block brings its own"),
    ],
)
def test_bad_values(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
