"""The mean-field maps of an activation φ at given σ_w, σ_b: V, V′, V″, χ₁ and R, R′, as functions.

In a wide random network the pre-activations of a layer are Gaussian; V carries their variance q to the next layer,
R the correlation ρ of two inputs at the fixed point q*. Weights are N(0, σ_w²/fan-in), biases N(0, σ_b²). The formulas
are those of `block.Chain`.
"""

from hush.theory._arrays import Value
from hush.theory.activations.protocol import Activation
from hush.theory.block.chain import Chain

__all__ = [
    "chi_1",
    "correlation_map",
    "correlation_map_slope",
    "covariance_map",
    "covariance_map_slope",
    "variance_map",
    "variance_map_curvature",
    "variance_map_slope",
]


def variance_map(phi: Activation, q: Value, sigma_w: float, sigma_b: float) -> Value:
    """V(q) = σ_w² E[φ(√q z)²] + σ_b², the next layer's variance (paper, eq. 3)."""
    return Chain(phi, sigma_w, sigma_b).variance(q)


def variance_map_slope(phi: Activation, q: Value, sigma_w: float) -> Value:
    """V′(q) = σ_w² E[φ φ′ x]/q, x = √q z; for CReLU the paper's eq. 13."""
    return Chain(phi, sigma_w, 0.0).variance_slope(q)


def variance_map_curvature(phi: Activation, q: Value, sigma_w: float) -> Value:
    """V″(q) = σ_w² E[φ φ′ x (z² − 3)]/(2q²), x = √q z; for ReLU_τ the paper's eq. 40."""
    return Chain(phi, sigma_w, 0.0).variance_curvature(q)


def chi_1(phi: Activation, q: Value, sigma_w: float) -> Value:
    """χ₁ = R′(1) = σ_w² E[φ′(√q z)²]: the gain of a gradient per layer (paper, eq. 11). Jumps are left out."""
    return Chain(phi, sigma_w, 0.0).gain(q)


def covariance_map(
    phi: Activation, rho: Value, q_a: float | Value, q_b: float | Value, sigma_w: float, sigma_b: float
) -> Value:
    """σ_w² E[φ(u₁)φ(u₂)] + σ_b²: the next layer's covariance of two inputs with variances q_a, q_b and correlation ρ.

    Elementwise over broadcast ρ, q_a, q_b.
    """
    return Chain(phi, sigma_w, sigma_b).covariance(rho, q_a, q_b)


def covariance_map_slope(phi: Activation, rho: Value, q_a: float | Value, q_b: float | Value, sigma_w: float) -> Value:
    """The derivative of the covariance map in ρ: σ_w² √(q_a q_b) E[φ′(u₁)φ′(u₂)]."""
    return Chain(phi, sigma_w, 0.0).covariance_slope(rho, q_a, q_b)


def correlation_map(phi: Activation, rho: Value, q_star: float, sigma_w: float, sigma_b: float) -> Value:
    """R(ρ) = (σ_w² E[φ(u₁)φ(u₂)] + σ_b²)/q*, both variances at the fixed point q* (paper, eq. 6)."""
    return covariance_map(phi, rho, q_star, q_star, sigma_w, sigma_b) / q_star


def correlation_map_slope(phi: Activation, rho: Value, q_star: float, sigma_w: float) -> Value:
    """R′(ρ) = σ_w² E[φ′(u₁)φ′(u₂)]; R′(1) = χ₁ when φ is continuous, ∞ when it jumps."""
    return covariance_map_slope(phi, rho, q_star, q_star, sigma_w) / q_star
