"""Units that are silent for every input of a batch: dead, as far as that batch can tell."""

import numpy as np

from hush.theory._arrays import Array
from hush.theory._normal import ndtr
from hush.theory.activations._panels import nodes_and_weights
from hush.theory.activations.protocol import Activation
from hush.theory.activations.relative import Relative

__all__ = ["dead_units"]

# Cuts around the edge of a silent interval, in units of the spread that the inputs do not share: fine where P(silent)
# turns from 0 to 1, and some way inside, where its power does for a large batch; then octaves.
_OFFSETS = np.concatenate([np.arange(0.5, 10.0, 0.5), 10.0 * 2.0 ** np.arange(0.0, 60.0)])
# So many (point, node) pairs are held in memory at a time.
_CHUNK = 256


def dead_units(phi: Activation, q: Array, rho: Array, inputs: int) -> Array:
    """P(a unit is 0 for all of `inputs` inputs), whose pre-activations have variance q and pairwise correlation ρ.

        ∫ p(z)^inputs n(z) dz,    p(z) = P(φ(√q(√ρ z + √(1−ρ) ε)) = 0)

    over the part z that the inputs share; negative ρ counts as 0. Elementwise over q and ρ.

    As ρ → 1 p(z) turns into a step at each end of a silent interval, of width √((1−ρ)/ρ): the panels of the quadrature
    are cut there and shrink towards it. (Gauss–Hermite, which knows nothing of the step, is wrong by 0.02 at ρ =
    0.995.)
    """
    if isinstance(phi, Relative):
        q = np.ones_like(np.asarray(q, dtype=np.float64))  # its silent interval is in units of √q
    q, rho = np.broadcast_arrays(np.asarray(q, dtype=np.float64), np.clip(np.asarray(rho, dtype=np.float64), 0.0, 1.0))
    # So near to 0 and 1 that no p(z) tells the difference, and far enough to divide by.
    shared, own = np.sqrt(q * np.maximum(rho, 1e-30)).ravel(), np.sqrt(q * np.maximum(1.0 - rho, 1e-30)).ravel()
    ends = tuple(sorted({end for part in phi.silent_intervals for end in part if np.isfinite(end)}))
    result = np.empty(shared.size)
    for start in range(0, shared.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        spread = own[part]
        x, _, weights = nodes_and_weights(np.zeros(spread.size), shared[part], ends or (0.0,), spread, offsets=_OFFSETS)
        silent = np.zeros(x.shape)
        for left, right in phi.silent_intervals:
            silent += ndtr((right - x) / spread[:, None]) - ndtr((left - x) / spread[:, None])
        result[part] = (np.clip(silent, 0.0, 1.0) ** inputs * weights).sum(1)
    return result.reshape(q.shape)
