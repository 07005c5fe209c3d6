"""Moments of the spectrum of JJᵀ, J the input–output Jacobian: how unevenly directions are stretched.

With μ_k = E[φ′(√q* z)^{2k}] and s₁ the first moment of the S-transform of WWᵀ (−1 for Gaussian, 0 for orthogonal
weights), Pennington et al. (2018) give

    m₁ = χ₁^L,   m₂ = χ₁^{2L} L (μ₂/μ₁² + 1/L − 1 − s₁),   σ²_{JJᵀ} = m₂ − m₁².

The paper prints μ₁/μ₂² (eqs. 29 and 30); the two agree where φ′ is 0 or 1.
"""

from dataclasses import dataclass
from typing import Literal

from hush.theory.activations.protocol import Activation
from hush.theory.edge import edge_of_chaos
from hush.theory.maps import chi_1

__all__ = ["Jacobian", "Weights", "jacobian", "spectrum_row"]

Weights = Literal["gaussian", "orthogonal"]
_S_1 = {"gaussian": -1.0, "orthogonal": 0.0}


@dataclass(frozen=True)
class Jacobian:
    """The first two moments of the spectrum of JJᵀ at depth L, and its variance."""

    depth: int
    weights: str
    mu_1: float
    mu_2: float
    m_1: float
    m_2: float
    variance: float


def jacobian(phi: Activation, q_star: float, sigma_w: float, depth: int, weights: Weights = "gaussian") -> Jacobian:
    """m₁, m₂ and σ²_{JJᵀ} of `depth` layers at the fixed point q*."""
    if weights not in _S_1:
        raise ValueError(f"weights must be 'gaussian' or 'orthogonal', got {weights!r}.")
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}.")
    mu_1, mu_2 = phi.slope_moment(1, q_star), phi.slope_moment(2, q_star)
    if mu_1 == 0.0:
        raise ValueError(f"{phi.name} is flat at q* = {q_star:g}: its Jacobian is zero.")
    m_1 = chi_1(phi, q_star, sigma_w) ** depth
    variance = m_1**2 * depth * (mu_2 / mu_1**2 - 1.0 - _S_1[weights])
    return Jacobian(depth, weights, mu_1, mu_2, m_1, m_1**2 + variance, variance)


def spectrum_row(phi: Activation, q_star: float, depth: int) -> dict[str, float]:
    """A row of the paper's spectrum table, on the Edge of Chaos: μ, σ_w², and σ²_{JJᵀ} for both kinds of weights."""
    sigma_w2 = edge_of_chaos(phi, q_star)[0]
    kinds: tuple[Weights, Weights] = ("gaussian", "orthogonal")
    gaussian, orthogonal = (jacobian(phi, q_star, sigma_w2**0.5, depth, kind) for kind in kinds)
    return {
        "mu": gaussian.mu_1,
        "sigma_w2": sigma_w2,
        "variance_gaussian": gaussian.variance,
        "variance_orthogonal": orthogonal.variance,
    }
