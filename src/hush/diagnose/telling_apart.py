"""Whether the layers of a plain chain still tell the measured inputs apart: 1 − ρ of every pair beside its bound."""

from dataclasses import dataclass

import torch

from hush.diagnose.measure import Measured
from hush.diagnose.prediction import Prediction
from hush.theory import Design
from hush.theory.training_rule import INDISTINGUISHABLE_ODDS, separation_bound

__all__ = ["ToldApart", "tell_apart"]


@dataclass(frozen=True)
class ToldApart:
    """What is left of the difference between two inputs in a chain.

    Attributes:
        separation: the median of 1 − ρ over the pairs of inputs, at the last layer.
        bound: what it must be at the least in a chain of this depth.
        lost: the share of pairs below the bound.
        from_layer: the first layer, from 1, at which a chain that ended there would have lost more than half of them;
            None if there is none.
    """

    separation: float
    bound: float
    lost: float
    from_layer: int | None

    @property
    def indistinguishable(self) -> bool:
        return self.lost > INDISTINGUISHABLE_ODDS


def tell_apart(measured: Measured, prediction: Prediction, design: Design | None) -> ToldApart | None:
    """Of the pairs of inputs within the first chunk; None for a single input, or activations that are not finite."""
    q = prediction.bands.q.median[-1] if design is None else design.q_star
    passing = prediction.block.phi.slope_moment(1, q)
    by_layer = []
    for layer, reading in enumerate(measured.readings, 1):
        if not reading.cosines:
            return None
        apart = (1.0 - reading.cosines[0].double()).clamp(min=0.0)
        if not bool(torch.isfinite(apart).all()):
            return None
        bound = separation_bound(passing, layer)
        by_layer.append((float(apart.median()), bound, float((apart < bound).double().mean())))
    first = next((layer for layer, (_, _, lost) in enumerate(by_layer, 1) if lost > INDISTINGUISHABLE_ODDS), None)
    return ToldApart(*by_layer[-1], first)
