"""Draws of two correlated Gaussians: what random weights make of two inputs."""

import numpy as np

from hush.theory._arrays import Array

__all__ = ["draw_pair"]


def draw_pair(v_a: Array, v_b: Array, covariance: Array, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """`width` draws of two Gaussians of these variances and covariance for each pair; shape (pairs, width)."""
    scale = np.sqrt(v_a * v_b)
    rho = np.clip(np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0.0), -1.0, 1.0)
    z_a, z_b = rng.standard_normal((2, scale.size, width))
    h_a = np.sqrt(v_a)[:, None] * z_a
    h_b = np.sqrt(v_b)[:, None] * (rho[:, None] * z_a + np.sqrt(1.0 - rho**2)[:, None] * z_b)
    return h_a, h_b
