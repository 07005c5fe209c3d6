"""The covariance map of a one-dimensional CNN: Σ_{α,α′} between the positions of a channel (paper, eq. 4).

    Σ_{α,α′} ← σ_b² + σ_w²/(2k+1) Σ_{β=−k}^{k} E[φ(h(α+β)) φ(h(α′+β))],   h ~ N(0, Σ)

A network of many channels is a Gaussian process with this covariance. Where all positions have the same variance and
correlation, Σ = q(δ + (1 − δ)ρ), it follows the DNN's V and R.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._arrays import Array
from hush.theory._checks import check_sigmas
from hush.theory.activations.protocol import Activation

__all__ = ["Padding", "covariance_step", "propagate_covariance", "uniform_covariance"]

Padding = Literal["circular", "zeros"]


def uniform_covariance(q: float, rho: float, positions: int) -> Array:
    """Σ = q(δ + (1 − δ)ρ): equal variances q and equal correlations ρ (the paper's eq. 5, its brackets set right)."""
    return q * (rho * np.ones((positions, positions)) + (1.0 - rho) * np.eye(positions))


def covariance_step(
    phi: Activation,
    sigma: ArrayLike,
    sigma_w: float,
    sigma_b: float,
    *,
    kernel: int = 3,
    padding: Padding = "circular",
) -> Array:
    """One layer of the covariance map. `sigma` is symmetric, positions × positions, with positive variances."""
    check_sigmas(sigma_w, sigma_b)
    sigma = _checked(sigma, kernel, padding)
    moments = _activated(phi, sigma)
    reach = kernel // 2
    if padding == "circular":
        shifted = [np.roll(moments, (-beta, -beta), axis=(0, 1)) for beta in range(-reach, reach + 1)]
        total = np.sum(shifted, axis=0)
    else:
        # Beyond the border the padded activations are 0, and so is what they add.
        size = len(moments)
        padded = np.pad(moments, reach)
        total = np.sum([padded[b : b + size, b : b + size] for b in range(kernel)], axis=0)
    return np.asarray(sigma_b**2 + sigma_w**2 / kernel * total)


def propagate_covariance(
    phi: Activation,
    sigma: ArrayLike,
    sigma_w: float,
    sigma_b: float,
    layers: int,
    *,
    kernel: int = 3,
    padding: Padding = "circular",
) -> Array:
    """Σ at layers 0 … layers, stacked: shape (layers + 1, positions, positions)."""
    if layers < 0:
        raise ValueError(f"layers must be at least 0, got {layers}.")
    history = [_checked(sigma, kernel, padding)]
    for _ in range(layers):
        history.append(covariance_step(phi, history[-1], sigma_w, sigma_b, kernel=kernel, padding=padding))
    return np.stack(history)


def _activated(phi: Activation, sigma: Array) -> Array:
    """E[φ(h_α)φ(h_α′)] for every pair of positions; the upper triangle is computed and mirrored."""
    variance = np.diag(sigma)
    upper = np.triu_indices(len(sigma), 1)
    deviation = np.sqrt(variance)
    rho = np.clip(sigma[upper] / (deviation[upper[0]] * deviation[upper[1]]), -1.0, 1.0)
    moments = np.zeros_like(sigma)
    moments[upper] = phi.cross_moment(rho, variance[upper[0]], variance[upper[1]])
    moments += moments.T
    np.fill_diagonal(moments, phi.second_moment(variance))
    return moments


def _checked(sigma: ArrayLike, kernel: int, padding: str) -> Array:
    sigma = np.array(sigma, dtype=np.float64)
    if sigma.ndim != 2 or sigma.shape[0] != sigma.shape[1] or not np.allclose(sigma, sigma.T, rtol=1e-8, atol=0.0):
        raise ValueError(f"sigma must be a symmetric matrix, got shape {sigma.shape}.")
    if not np.all(np.diag(sigma) > 0.0):
        raise ValueError(f"sigma must have positive variances, got {float(np.diag(sigma).min())}.")
    if kernel < 1 or kernel % 2 == 0:
        raise ValueError(f"kernel must be odd, 2k + 1, got {kernel}.")
    if padding not in ("circular", "zeros"):
        raise ValueError(f"padding must be 'circular' or 'zeros', got {padding!r}.")
    return sigma
