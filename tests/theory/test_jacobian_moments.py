"""The spectrum of JJᵀ against real products of random matrices and the paper's table."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from hush.theory import (
    PiecewiseLinear,
    crelu,
    cst,
    edge_of_chaos,
    jacobian,
    leaky_relu,
    relu,
    shifted_relu,
    soft_threshold,
    spectrum_row,
)


def measured_moments(phi: PiecewiseLinear, sigma_w: float, depth: int, weights: str) -> tuple[float, float]:
    """m₁ and m₂ of JJᵀ for J = Π DW at q* = 1, width 400, averaged over draws."""
    rng, width, draws = np.random.default_rng(0), 400, 6
    # Evenly spread quantiles in random order: the same law with less noise.
    slopes = phi.derivative(norm.ppf((np.arange(width) + 0.5) / width))
    first = second = 0.0
    for _ in range(draws):
        j = np.eye(width)
        for _ in range(depth):
            w = rng.normal(size=(width, width))
            w = np.linalg.qr(w)[0] if weights == "orthogonal" else w / math.sqrt(width)
            j = rng.permutation(slopes)[:, None] * (sigma_w * w @ j)
        jj = j @ j.T
        first += np.trace(jj) / width / draws
        second += np.trace(jj @ jj) / width / draws
    return first, second


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("phi", [leaky_relu(0.5), crelu(0.5, 1.0), soft_threshold(0.4)], ids=lambda phi: phi.name)
def test_moments_of_real_jacobians(phi: PiecewiseLinear, weights: str) -> None:
    # leaky_relu tells μ₂/μ₁² from the paper's μ₁/μ₂².
    sigma_w = math.sqrt(1.1 / phi.slope_moment(1, 1.0))
    ours = jacobian(phi, 1.0, sigma_w, 3, weights)
    first, second = measured_moments(phi, sigma_w, 3, weights)
    assert ours.m_1 == pytest.approx(first, rel=0.03)
    assert ours.m_2 == pytest.approx(second, rel=0.05)
    assert ours.variance == pytest.approx(ours.m_2 - ours.m_1**2)


@pytest.mark.parametrize("phi", [relu(), shifted_relu(1.0), soft_threshold(1.0), crelu(1.0, 0.8), cst(1.0, 0.8)])
def test_the_papers_spectrum_table(phi: PiecewiseLinear) -> None:
    row = spectrum_row(phi, 1.0, 100)
    # σ_w² = 1/μ and σ²_{JJᵀ} = L(σ_w² − 1 − s₁) where φ′ is 0 or 1.
    assert row["sigma_w2"] == pytest.approx(1.0 / row["mu"])
    assert row["variance_gaussian"] == pytest.approx(100 * row["sigma_w2"])
    assert row["variance_orthogonal"] == pytest.approx(100 * (row["sigma_w2"] - 1.0))


def test_unclipped_variance_grows_as_stated_in_appendix_a() -> None:
    s = shifted_relu(1.0).sparsity(1.0)
    row = spectrum_row(shifted_relu(1.0), 1.0, 50)
    assert row["variance_gaussian"] == pytest.approx(50 / (1 - s))
    assert row["variance_orthogonal"] == pytest.approx(50 * s / (1 - s))


def test_bad_values_are_named() -> None:
    with pytest.raises(ValueError, match="weights must be 'gaussian' or 'orthogonal', got 'uniform'"):
        jacobian(relu(), 1.0, 1.0, 3, "uniform")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        jacobian(relu(), 1.0, 1.0, 0)
    with pytest.raises(ValueError, match="flat at q"):
        jacobian(shifted_relu(90.0), 1.0, edge_of_chaos(relu(), 1.0)[0], 3)
