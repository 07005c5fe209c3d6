"""Where the correlation of two inputs may lie in one real network of width N, layer by layer."""

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._checks import check_size, check_variance
from hush.theory.activations.protocol import Activation
from hush.theory.block.choose import block_from
from hush.theory.block.protocol import Block
from hush.theory.layer_bands import Band

__all__ = ["correlation_band"]

_PAIRS = 256
# So many Gaussian numbers at most for all pairs and layers, a second of work, and so many for one layer's.
_BUDGET, _AT_A_TIME = 3e7, 3e7


def correlation_band(
    phi: Activation | Block,
    sigma_w: float | None = None,
    sigma_b: float | None = None,
    width: int = 0,
    depth: int = 0,
    *,
    q_start: float,
    correlations: ArrayLike,
    coverage: float = 0.99,
    seed: int = 0,
) -> Band:
    """The band of the correlation of two inputs, each pair starting from one of `correlations`; layer by layer, not
    simultaneous: as correlations crowd at 1 their spread changes shape, and no one number scales it.

    The pair (k_a, k_b, c) is again an exact chain: N draws (h_a, h_b) of that covariance, and what the block makes of
    them, ρ = c/√(k_a k_b).
    """
    check_variance("q_start", q_start)
    check_size(width, depth)
    block = block_from(phi, sigma_w, sigma_b)
    pairs = int(np.clip(_BUDGET / (2.0 * width * depth), 32, _PAIRS))
    if 2.0 * pairs * width > _AT_A_TIME:
        raise ValueError(
            f"width must be at most {int(_AT_A_TIME / 2.0 / pairs)} to simulate pairs of inputs, got {width}."
        )
    rng = np.random.default_rng(seed)
    rho = np.clip(rng.choice(np.asarray(correlations, dtype=np.float64).ravel(), pairs), -1.0, 1.0)
    k_a = k_b = np.full(pairs, q_start)
    history = np.empty((depth, pairs))
    for layer in range(depth):
        z_a, z_b = rng.standard_normal((2, pairs, width))
        h_a = np.sqrt(k_a)[:, None] * z_a
        h_b = np.sqrt(k_b)[:, None] * (rho[:, None] * z_a + np.sqrt(1.0 - rho**2)[:, None] * z_b)
        # What is measured is the cosine of the two draws, not the ρ they came from; 0 where one has died out.
        norms = np.sqrt((h_a**2).sum(1) * (h_b**2).sum(1))
        history[layer] = np.divide((h_a * h_b).sum(1), norms, out=np.zeros(pairs), where=norms > 0.0)
        k_a, k_b, c = block.propagate_pairs(h_a, h_b)
        scale = np.sqrt(k_a * k_b)
        rho = np.clip(np.divide(c, scale, out=np.zeros(pairs), where=scale > 0.0), -1.0, 1.0)
    tail = 0.5 * (1.0 - coverage)
    low, median, high = np.quantile(history, (tail, 0.5, 1.0 - tail), axis=1).tolist()
    return Band(tuple(low), tuple(median), tuple(high))
