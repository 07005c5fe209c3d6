"""Random fields of a given covariance, for what no formula gives: the maximum over a window of dependent Gaussians."""

import math

import numpy as np

from hush.theory._arrays import Array
from hush.theory.positions.field import Field

__all__ = ["covariance_of", "draw_field", "draws_for"]

_NUMBERS, _FEWEST, _MOST = 1 << 21, 64, 8192


def draws_for(field: Field) -> int:
    """So many draws that a mean over them and the positions has its third digit, and no more than fit into memory."""
    return int(np.clip(_NUMBERS // (field.positions * field.inputs), _FEWEST, _MOST))


def draw_field(field: Field, draws: int, rng: np.random.Generator) -> Array:
    """(draws, inputs, T) Gaussian numbers of the field's covariance."""
    n, size = field.inputs, field.positions
    if not field.stationary:
        joint = field.kernel.transpose(0, 2, 1, 3).reshape(n * size, n * size)
        values, vectors = np.linalg.eigh(joint)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        white = rng.standard_normal((draws, n * size))
        # With more draws than numbers in one, their second moments are made exact: less is left to chance.
        if draws > 2 * n * size:
            factor = np.linalg.cholesky(white.T @ white / draws)
            white = np.linalg.solve(factor, white.T).T
        return np.asarray((white @ root.T).reshape(draws, n, size))
    axes = tuple(range(2, 2 + len(field.shape)))
    spectrum = np.fft.fftn(field.kernel.reshape(n, n, *field.shape), axes=axes)
    matrices = np.moveaxis(spectrum.reshape(n, n, size), 2, 0)
    values, vectors = np.linalg.eigh(0.5 * (matrices + np.conj(matrices.transpose(0, 2, 1))))
    roots = np.einsum("fab,fb,fcb->fac", vectors, np.sqrt(np.maximum(values, 0.0)), np.conj(vectors))
    white = rng.standard_normal((draws, n, *field.shape))
    waves = np.fft.fftn(white, axes=axes).reshape(draws, n, size)
    mixed = np.einsum("fab,sbf->saf", np.conj(roots), waves).reshape(white.shape)
    return np.real(np.fft.ifftn(mixed, axes=axes)).reshape(draws, n, size)


def covariance_of(values: Array, shape: tuple[int, ...], stationary: bool) -> Array:
    """The second moments of (draws, inputs, T) numbers, in the form of a field's kernel."""
    draws, n, size = values.shape
    if not stationary:
        joint = values.reshape(draws, n * size)
        kernel = joint.T @ joint / draws
        return np.asarray(kernel.reshape(n, size, n, size).transpose(0, 2, 1, 3))
    axes = tuple(range(2, 2 + len(shape)))
    waves = np.fft.fftn(values.reshape(draws, n, *shape), axes=axes)
    power = np.einsum("sa...,sb...->ab...", np.conj(waves), waves) / draws / math.prod(shape)
    return np.real(np.fft.ifftn(power, axes=tuple(range(2, power.ndim)))).reshape(n, n, size)
