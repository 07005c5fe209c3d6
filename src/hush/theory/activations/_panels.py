"""Quadrature nodes for Gaussians of any centre and spread, on panels that follow the features of a function.

Gauss–Legendre on panels: at most `step` standard deviations wide, so that each sees a smooth Gaussian; cut at the
kinks; and shrinking geometrically towards each feature, so that a φ which changes within a tiny part of a standard
deviation (q much larger than its own scale) is resolved as well as one that hardly bends.
"""

from functools import lru_cache

import numpy as np

from hush.theory._arrays import Array
from hush.theory._gaussian import density

__all__ = ["OCTAVES", "REACH", "nodes_and_weights"]

# So many standard deviations out z⁶ n(z) is below 1e-24.
REACH = 12.0
# Cuts around a feature, in units of the function's scale: from an eighth of it to where nothing of it is left.
OCTAVES = 2.0 ** np.arange(-3, 42, 1.0)


def nodes_and_weights(
    centre: Array,
    spread: Array,
    features: tuple[float, ...],
    scale: float | Array,
    *,
    count: int = 16,
    step: float = 1.0,
    offsets: Array = OCTAVES,
) -> tuple[Array, Array, Array]:
    """(x, z, weights) of shape (points, nodes): Σ weights·f(x) is E[f(centre + spread·z)], z = (x − centre)/spread.

    Arguments:
        features: where the function bends, in units of x; a kink must be among them.
        scale: how far around a feature it bends; one number, or one for each point.
        count: Gauss–Legendre nodes on each panel.
        step: the widest panel, in standard deviations.
        offsets: where panels are cut on either side of a feature, in units of the scale.
    """
    even = np.broadcast_to(np.arange(-REACH, REACH + 0.5 * step, step), (centre.size, round(2.0 * REACH / step) + 1))
    sides = np.concatenate([-offsets[::-1], [0.0], offsets])
    scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), centre.shape)[:, None]
    around = [(feature - centre[:, None] + scales * sides) / spread[:, None] for feature in features]
    edges = np.sort(np.clip(np.concatenate([even, *around], axis=1), -REACH, REACH), axis=1)
    width = np.diff(edges, axis=1)
    # Panels of no width at any point are left out: most cuts lie beyond the reach of most Gaussians.
    used = (width > 0.0).any(0)
    left, width = edges[:, :-1][:, used], width[:, used]
    base, weight = _gauss(count)
    z = (left[:, :, None] + width[:, :, None] * base).reshape(centre.size, -1)
    weights = (width[:, :, None] * weight).reshape(centre.size, -1) * density(z)
    return centre[:, None] + spread[:, None] * z, z, weights


@lru_cache
def _gauss(count: int) -> tuple[Array, Array]:
    """Gauss–Legendre on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return 0.5 * (nodes + 1.0), 0.5 * weights
