"""The clip of a chain, weighed between two ways to fail.

A larger clip keeps inputs further apart and lets q run away more easily; a smaller one holds q and makes inputs
indistinguishable. So the clip is the largest that is safe from exploding, and where that leaves inputs too close, as
much larger as telling them apart takes, up to where the rule says that the network explodes. Where the two bounds have
passed each other no clip is safe at this depth.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from hush.theory._checks import check_positive
from hush.theory.activations.registry import ActivationEntry, activation, entry_of
from hush.theory.block.chain import Chain
from hush.theory.edge import edge_of_chaos
from hush.theory.input_correlations import IMAGE_CORRELATIONS, InputCorrelations
from hush.theory.input_norms import IMAGE_NORMS, InputNorms
from hush.theory.safe_clip import largest_safe_clip
from hush.theory.separation_curve import separations
from hush.theory.sparsity_threshold import threshold_from_sparsity
from hush.theory.training_rule import INDISTINGUISHABLE_ODDS, TRAINABLE_ODDS

__all__ = ["ClipChoice", "choose_clip"]

# The clip is found to within this share of itself.
_FINE = 0.01


@dataclass(frozen=True)
class ClipChoice:
    """A clip, and how it came about.

    Attributes:
        raised: whether it is larger than the largest that explodes with the odds asked for, so that inputs stay apart.
        safe: whether neither way to fail is beyond the rule. If not, it is the largest that hardly explodes: networks
            that hardly tell inputs apart learn slowly, those that explode not at all.
    """

    clip: float
    raised: bool
    safe: bool


def choose_clip(
    name: str,
    sparsity: float,
    width: int,
    depth: int,
    odds: float = 0.01,
    *,
    q_star: float = 1.0,
    norms: InputNorms = IMAGE_NORMS,
    correlations: InputCorrelations = IMAGE_CORRELATIONS,
    positions: int = 1,
) -> ClipChoice:
    """The clip for this width and depth, with at most `odds` of exploding gradients where inputs stay apart at that.

    Raises:
        ValueError: if no clip keeps gradients from exploding.
    """
    check_positive("q_star", q_star)
    # Scale is free: only s and m/√q* matter, so the clip is chosen at q* = 1.
    found = _choose(entry_of(name), name, sparsity, width, depth, odds, norms, correlations, positions)
    return replace(found, clip=math.sqrt(q_star) * found.clip)


# The explorer asks for the clip, and then for the design that has it. The entry is part of the key, for a name may be
# registered anew.
@lru_cache(maxsize=2)
def _choose(
    entry: ActivationEntry,
    name: str,
    sparsity: float,
    width: int,
    depth: int,
    odds: float,
    norms: InputNorms,
    correlations: InputCorrelations,
    positions: int,
) -> ClipChoice:
    threshold = threshold_from_sparsity(name, sparsity)
    calm = largest_safe_clip(name, sparsity, width, depth, odds, norms=norms, positions=positions)

    def lost(clip: float) -> float:
        phi = activation(name, threshold, clip)
        w2, b2 = edge_of_chaos(phi, 1.0)
        chain = Chain(phi, math.sqrt(w2), math.sqrt(b2), positions)
        return separations(chain, width, depth, norms=norms, correlations=correlations).indistinguishable

    if lost(calm) <= INDISTINGUISHABLE_ODDS:
        return ClipChoice(calm, raised=False, safe=True)
    if odds >= TRAINABLE_ODDS:
        return ClipChoice(calm, raised=False, safe=False)
    boldest = largest_safe_clip(name, sparsity, width, depth, TRAINABLE_ODDS, norms=norms, positions=positions)
    if lost(boldest) > INDISTINGUISHABLE_ODDS:
        return ClipChoice(calm, raised=False, safe=False)
    close, apart = calm, boldest
    while apart > (1.0 + _FINE) * close:
        middle = math.sqrt(close * apart)
        close, apart = (middle, apart) if lost(middle) > INDISTINGUISHABLE_ODDS else (close, middle)
    return ClipChoice(apart, raised=True, safe=True)
