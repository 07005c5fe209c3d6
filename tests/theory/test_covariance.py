"""The CNN covariance map against the DNN maps, direct sums and real random CNNs."""

import math

import numpy as np
import pytest

from hush.theory import (
    correlation_map,
    covariance_map,
    covariance_step,
    crelu,
    cst,
    edge_of_chaos,
    propagate_covariance,
    uniform_covariance,
    variance_map,
)

PHI = crelu(1.0, 1.2)
SIGMA_W, SIGMA_B = (math.sqrt(v) for v in edge_of_chaos(PHI, 1.0))


def test_uniform_covariance_follows_the_dnn_maps() -> None:
    history = propagate_covariance(PHI, uniform_covariance(1.0, 0.3, 7), SIGMA_W, SIGMA_B, 5)
    rho = 0.3
    for sigma in history:
        assert sigma == pytest.approx(uniform_covariance(1.0, rho, 7), rel=1e-9)
        rho = correlation_map(PHI, rho, 1.0, SIGMA_W, SIGMA_B)


def test_off_the_fixed_point_too() -> None:
    history = propagate_covariance(PHI, uniform_covariance(2.0, 0.5, 5), 2.0, 0.3, 3, kernel=5)
    q, covariance = 2.0, 1.0
    for sigma in history:
        assert sigma == pytest.approx(uniform_covariance(q, covariance / q, 5), rel=1e-9)
        q, covariance = variance_map(PHI, q, 2.0, 0.3), covariance_map(PHI, covariance / q, q, q, 2.0, 0.3)


def random_covariance(size: int, seed: int) -> np.ndarray:
    factor = np.random.default_rng(seed).normal(size=(size, 2 * size))
    return factor @ factor.T / (2 * size)


@pytest.mark.parametrize("padding", ["circular", "zeros"])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_step_is_the_sum_of_the_paper(padding: str, kernel: int) -> None:
    sigma, size, k = random_covariance(6, 1), 6, kernel // 2
    ours = covariance_step(PHI, sigma, 1.5, 0.4, kernel=kernel, padding=padding)
    for a in range(size):
        for b in range(size):
            total = 0.0
            for beta in range(-k, k + 1):
                i, j = a + beta, b + beta
                if padding == "circular":
                    i, j = i % size, j % size
                elif not (0 <= i < size and 0 <= j < size):
                    continue
                rho = np.clip(sigma[i, j] / math.sqrt(sigma[i, i] * sigma[j, j]), -1, 1)
                total += covariance_map(PHI, rho, sigma[i, i], sigma[j, j], 1.0, 0.0)
            assert ours[a, b] == pytest.approx(0.4**2 + 1.5**2 / kernel * total, rel=1e-9)


@pytest.mark.parametrize("padding", ["circular", "zeros"])
def test_real_random_cnns_have_this_covariance(padding: str) -> None:
    # Two layers of a 1-d CNN with many channels, drawn anew many times; the channels of the second layer are samples.
    rng, size, channels, draws = np.random.default_rng(0), 5, 300, 60
    phi, sigma_w, sigma_b = cst(0.7, 1.0), 1.8, 0.3
    sigma = random_covariance(size, 2)
    first = rng.multivariate_normal(np.zeros(size), sigma, size=(draws, channels))
    x = np.pad(phi(first), ((0, 0), (0, 0), (1, 1)), mode="wrap" if padding == "circular" else "constant")
    weights = rng.normal(size=(draws, channels, channels, 3)) * sigma_w / math.sqrt(3 * channels)
    h = sum(np.einsum("doc,dcp->dop", weights[..., b], x[:, :, b : b + size]) for b in range(3))
    h += sigma_b * rng.normal(size=(draws, channels, 1))
    measured = np.einsum("dop,doq->pq", h, h) / (draws * channels)
    expected = covariance_step(phi, sigma, sigma_w, sigma_b, padding=padding)
    assert measured == pytest.approx(expected, abs=0.06 * expected.max())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": 4}, "kernel must be odd, 2k \\+ 1, got 4"),
        ({"padding": "reflect"}, "padding must be 'circular' or 'zeros', got 'reflect'"),
        ({"sigma": np.ones((2, 3))}, r"sigma must be a symmetric matrix, got shape \(2, 3\)"),
        ({"sigma": np.zeros((2, 2))}, "sigma must have positive variances, got 0.0"),
        ({"layers": -1}, "layers must be at least 0, got -1"),
    ],
)
def test_bad_values_are_named(change: dict, message: str) -> None:
    arguments = {"sigma": np.eye(3), "sigma_w": 1.0, "sigma_b": 0.1, "layers": 2} | change
    with pytest.raises(ValueError, match=message):
        propagate_covariance(PHI, **arguments)
