"""V′ and V″ on the Edge of Chaos of a φ that rises with slope 1 from τ to τ + m and is flat elsewhere, in closed form.

On the Edge of Chaos σ_w² = 1/E[φ′²], so both are means over the sloped piece alone. The readable form, E[φ²]′/E[φ′²] of
the activation itself, gives the same one clip at a time; this one takes every m at once and keeps its digits for a clip
far below the threshold, where τ + m as a kink has lost them.
"""

import numpy as np

from hush.theory._arrays import Array
from hush.theory._gaussian import interval_moments
from hush.theory.activations._piece import curvature_share, slope_share

__all__ = ["slope_and_curvature_on_edge"]


def slope_and_curvature_on_edge(threshold: float, clips: Array) -> tuple[Array, Array]:
    """(V′, V″) at q* = 1 for this τ and each m."""
    start, end, rise = np.full(clips.shape, threshold), threshold + clips, np.zeros(clips.shape)
    moments = interval_moments(start, end, clips, 2)
    if not moments[0].all():
        raise ValueError(f"E[φ′²] = 0 at a threshold of {threshold:g} √q*: no σ_w brings χ₁ to 1.")
    slopes = slope_share(start, rise, moments) / moments[0]
    return slopes, 0.5 * curvature_share(start, end, clips, rise) / moments[0]
