"""The largest clip at which hardly any gradient explodes, which the paper leaves open (section 3.1)."""

import math

import numpy as np

from hush.theory._checks import check_positive, check_samples, check_size
from hush.theory._root import find_root
from hush.theory.activations.registry import activation, entry_of
from hush.theory.block.chain import Chain
from hush.theory.chain_draws import Draws, Single, draw
from hush.theory.chain_run import SAMPLES, largest_gains
from hush.theory.clip_slope import clip_from_slope
from hush.theory.design_arguments import RELATIVE_CLIP
from hush.theory.edge import edge_of_chaos
from hush.theory.input_norms import IMAGE_NORMS, InputNorms
from hush.theory.sparsity_threshold import threshold_from_sparsity
from hush.theory.training_rule import EXPLODING_GAIN_LOG10

__all__ = ["largest_safe_clip"]

_SMALLEST_CLIP, _LARGEST_CLIP = 0.05, 5.0
# Where the search begins: at the clip of this V′(q*).
_FIRST_SLOPE = 0.75
# Between the clips tried first, in log m.
_STEP = 0.3
# A chain that explodes at a clip comes within this many decades of it at any clip up to a step larger.
_MARGIN = 1.0


def largest_safe_clip(
    name: str,
    sparsity: float,
    width: int,
    depth: int,
    odds: float = 0.01,
    *,
    q_star: float = 1.0,
    norms: InputNorms = IMAGE_NORMS,
    positions: int = 1,
) -> float:
    """The largest m at which at most `odds` of initialisations and inputs explode on the Edge of Chaos.

    A larger clip lets more gradient through; a smaller one holds q more firmly. At most 5√q*: so far out a clip no
    longer does anything. `positions` is 1 for an MLP and the size of the feature map for a CNN.

    Raises:
        ValueError: if no clip is that safe, because the width is too small for the depth.
    """
    if not 0.0 < odds < 1.0:
        raise ValueError(f"odds must lie strictly between 0 and 1, got {odds}.")
    if entry_of(name).relative:
        raise ValueError(
            f"{name} needs no clip to be safe: V is a straight line with a slope below 1 at any; design takes "
            f"{RELATIVE_CLIP:g} rms(h) unless another is given."
        )
    check_size(width, depth, positions)
    check_samples(SAMPLES, depth)
    check_positive("q_star", q_star)
    # Scale is free: only s and m/√q* matter, so the search runs at q* = 1.
    threshold = threshold_from_sparsity(name, sparsity)
    everyone = draw(depth, SAMPLES, 0, norms)
    # By log m, the largest log10 gain of each chain.
    tried: dict[float, Single] = {}

    def risk(log_clip: float, draws: Draws = everyone) -> float:
        """log(odds at this clip/odds allowed); half a count keeps it finite."""
        if log_clip not in tried:
            phi = activation(name, threshold, float(np.exp(log_clip)))
            w2, b2 = edge_of_chaos(phi, 1.0)
            block = Chain(phi, math.sqrt(w2), math.sqrt(b2), positions)
            tried[log_clip] = largest_gains(block, width, draws)
        count = np.sum(tried[log_clip] > EXPLODING_GAIN_LOG10)
        return float(np.log((count + 0.5) / (odds * SAMPLES + 0.5)))

    # From the first clip upwards while it is safe, downwards while it is not. Far down the odds rise again, because few
    # units are left to pass a gradient: where nothing is safe on the way down, no clip is.
    safe = math.log(clip_from_slope(name, threshold, _FIRST_SLOPE))
    smallest, largest = math.log(_SMALLEST_CLIP), math.log(_LARGEST_CLIP)
    unsafe = None
    while risk(safe) > 0.0:
        safe, unsafe = safe - _STEP, safe
        if safe < smallest:
            raise ValueError(
                f"no clip keeps the odds of exploding gradients within {odds:g} for {name} at sparsity {sparsity:g}, "
                f"width {width} and depth {depth}; take a wider or shallower network, or less sparsity."
            )
    while unsafe is None and safe < largest:
        above = min(safe + _STEP, largest)
        safe, unsafe = (above, None) if risk(above) <= 0.0 else (safe, above)
    if unsafe is not None:
        # Only the chains that come close to exploding at the larger clip can explode below it.
        close = everyone.only(tried[unsafe] > EXPLODING_GAIN_LOG10 - _MARGIN)
        find_root(lambda log_clip: risk(log_clip, close), safe, unsafe, xtol=5e-3)
    # The search may end on either side of the root: take the largest clip that was seen to be safe.
    return float(np.sqrt(q_star) * np.exp(max(log_clip for log_clip in tried if risk(log_clip) <= 0.0)))
