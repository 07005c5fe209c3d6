"""The mean-field maps of an activation φ at given σ_w, σ_b: V, V′, V″, χ₁ and R, R′.

In a wide random network the pre-activations of a layer are Gaussian; V carries their variance q to the next layer,
R the correlation ρ of two inputs at the fixed point q*. Weights are N(0, σ_w²/fan-in), biases N(0, σ_b²).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._price import cross_moment, cross_moment_and_slope, cross_moment_slope
from hush.theory.activation import PiecewiseLinear

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


def variance_map(phi: PiecewiseLinear, q: ArrayLike, sigma_w: float, sigma_b: float) -> Any:
    """V(q) = σ_w² E[φ(√q z)²] + σ_b², the next layer's variance (paper, eq. 3)."""
    check_sigmas(sigma_w, sigma_b)
    return sigma_w**2 * phi.second_moment(q) + sigma_b**2


def variance_map_slope(phi: PiecewiseLinear, q: ArrayLike, sigma_w: float) -> Any:
    """V′(q) = σ_w² E[φ φ′ x]/q, x = √q z; for CReLU the paper's eq. 13."""
    check_sigmas(sigma_w, 0.0)
    return sigma_w**2 * phi.second_moment_slope(q)


def variance_map_curvature(phi: PiecewiseLinear, q: ArrayLike, sigma_w: float) -> Any:
    """V″(q) = σ_w² E[φ φ′ x (z² − 3)]/(2q²), x = √q z; for ReLU_τ the paper's eq. 40."""
    check_sigmas(sigma_w, 0.0)
    return sigma_w**2 * phi.second_moment_curvature(q)


def chi_1(phi: PiecewiseLinear, q: ArrayLike, sigma_w: float) -> Any:
    """χ₁ = R′(1) = σ_w² E[φ′(√q z)²]: the gain of a gradient per layer (paper, eq. 11). Jumps are left out."""
    check_sigmas(sigma_w, 0.0)
    return sigma_w**2 * phi.slope_moment(1, q)


def covariance_map(
    phi: PiecewiseLinear, rho: ArrayLike, q_a: ArrayLike, q_b: ArrayLike, sigma_w: float, sigma_b: float
) -> Any:
    """σ_w² E[φ(u₁)φ(u₂)] + σ_b²: the next layer's covariance of two inputs with variances q_a, q_b and correlation ρ.

    Elementwise over broadcast ρ, q_a, q_b.
    """
    check_sigmas(sigma_w, sigma_b)
    return sigma_w**2 * cross_moment(phi, rho, q_a, q_b) + sigma_b**2


def covariance_map_slope(phi: PiecewiseLinear, rho: ArrayLike, q_a: ArrayLike, q_b: ArrayLike, sigma_w: float) -> Any:
    """The derivative of the covariance map in ρ: σ_w² √(q_a q_b) E[φ′(u₁)φ′(u₂)]."""
    check_sigmas(sigma_w, 0.0)
    return sigma_w**2 * cross_moment_slope(phi, rho, q_a, q_b)


def correlation_map(phi: PiecewiseLinear, rho: ArrayLike, q_star: float, sigma_w: float, sigma_b: float) -> Any:
    """R(ρ) = (σ_w² E[φ(u₁)φ(u₂)] + σ_b²)/q*, both variances at the fixed point q* (paper, eq. 6)."""
    return covariance_map(phi, rho, q_star, q_star, sigma_w, sigma_b) / q_star


def correlation_map_slope(phi: PiecewiseLinear, rho: ArrayLike, q_star: float, sigma_w: float) -> Any:
    """R′(ρ) = σ_w² E[φ′(u₁)φ′(u₂)]; R′(1) = χ₁ when φ is continuous, ∞ when it jumps."""
    return covariance_map_slope(phi, rho, q_star, q_star, sigma_w) / q_star


def correlation_map_and_slope(
    phi: PiecewiseLinear, rho: ArrayLike, q_star: float, sigma_w: float, sigma_b: float
) -> tuple[Any, Any]:
    """(R, R′), in little more time than one of them."""
    check_sigmas(sigma_w, sigma_b)
    value, slope = cross_moment_and_slope(phi, rho, q_star, q_star)
    return (sigma_w**2 * value + sigma_b**2) / q_star, sigma_w**2 * slope / q_star


def check_sigmas(sigma_w: float, sigma_b: float) -> None:
    """Raise a ValueError unless σ_w and σ_b are finite and not negative."""
    for name, value in (("sigma_w", sigma_w), ("sigma_b", sigma_b)):
        if not (np.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} must be finite and not negative, got {value}.")
