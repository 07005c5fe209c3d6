"""Where the correlation of two inputs may lie in one real network of width N, layer by layer."""

import numpy as np
from numpy.typing import ArrayLike

from hush.theory._arrays import Array
from hush.theory._checks import check_size, check_variance
from hush.theory.activations.protocol import Activation
from hush.theory.block.choose import block_from
from hush.theory.block.pair_draws import draw_pair
from hush.theory.block.protocol import Block
from hush.theory.layer_bands import Band

__all__ = ["correlation_band", "run_pairs"]

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

    The pair is again an exact chain: two streams of N units, and what a block of drawn weights makes of them.
    """
    block = block_from(phi, sigma_w, sigma_b)
    history = run_pairs(block, width, depth, q_start, correlations, seed)
    tail = 0.5 * (1.0 - coverage)
    low, median, high = np.quantile(history, (tail, 0.5, 1.0 - tail), axis=1).tolist()
    return Band(tuple(low), tuple(median), tuple(high))


def run_pairs(
    block: Block,
    width: int,
    depth: int,
    q_start: float,
    correlations: ArrayLike,
    seed: int = 0,
    at_most: int = _PAIRS,
) -> Array:
    """The measured correlations, the cosines of the two streams, at layers 1 … depth; shape (layers, pairs)."""
    check_variance("q_start", q_start)
    check_size(width, depth)
    pairs = int(np.clip(_BUDGET / (2.0 * width * depth), 32, at_most))
    if 2.0 * pairs * width > _AT_A_TIME:
        raise ValueError(
            f"width must be at most {int(_AT_A_TIME / 2.0 / pairs)} to simulate pairs of inputs, got {width}."
        )
    rng = np.random.default_rng(seed)
    rho = np.clip(rng.choice(np.asarray(correlations, dtype=np.float64).ravel(), pairs), -1.0, 1.0)
    k = np.full(pairs, q_start)
    history = np.empty((depth, pairs))
    x_a, x_b = draw_pair(k, k, rho * q_start, width, rng)
    for layer in range(depth):
        if layer > 0:
            x_a, x_b = block.next_pair(x_a, x_b, rng)
        # What is measured is the cosine of the two draws, not the ρ they came from; 0 where one has died out.
        norms = np.sqrt((x_a**2).sum(1) * (x_b**2).sum(1))
        history[layer] = np.divide((x_a * x_b).sum(1), norms, out=np.zeros(pairs), where=norms > 0.0)
    return history
