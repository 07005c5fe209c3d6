"""Second moments of wide random layers by brute force: dense matrices in NumPy, averaged over channels and draws."""

from collections.abc import Callable

import numpy as np

from hush.theory import Field

Array = np.ndarray


def field_of(kernel: Array, shape: tuple[int, ...] | None = None) -> Field:
    """A Gaussian field of one input."""
    size = len(kernel)
    return Field((size,) if shape is None else shape, np.asarray(kernel, float)[None, None], np.zeros((1, size)))


def correlated(size: int, seed: int = 0) -> Array:
    """A covariance with nothing regular about it."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((size, size + 3))
    return root @ root.T / size + 0.3


def channels(kernel: Array, count: int, seed: int = 0) -> Array:
    """(count, T) Gaussian channels whose second moment is the kernel, to rounding."""
    white = np.random.default_rng(seed).standard_normal((count, len(kernel)))
    white = np.linalg.solve(np.linalg.cholesky(white.T @ white / count), white.T).T
    values, vectors = np.linalg.eigh(kernel)
    return white @ (vectors * np.sqrt(np.maximum(values, 0.0))).T


def moments(x: Array) -> Array:
    return x.T @ x / len(x)


def softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def average(draw: Callable[[np.random.Generator], Array], draws: int, seed: int = 0) -> tuple[Array, Array]:
    """The mean over draws and its standard error."""
    rng = np.random.default_rng(seed)
    values = np.array([draw(rng) for _ in range(draws)])
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(draws)
