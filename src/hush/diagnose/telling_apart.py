"""Whether a plain chain can tell the inputs at hand apart: the law of 1 − ρ for them, beside what was measured.

The verdict is that of the law and not of the one network: 1 − ρ behind the last layer differs by a factor of ten
between draws of one design, all of which train alike in the paper (0.94 ± 0.004).
"""

from dataclasses import dataclass

import numpy as np

from hush.diagnose.measure import Measured
from hush.theory import Chain, InputCorrelations, InputNorms, Separations, separations
from hush.theory.training_rule import INDISTINGUISHABLE_ODDS

__all__ = ["ToldApart", "tell_apart"]


@dataclass(frozen=True)
class ToldApart:
    """What is left of the difference between two inputs in a chain.

    Attributes:
        measured: the median of 1 − ρ over the pairs of inputs, at the last layer.
        expected: the law for networks of this kind, from the norms and cosines of these inputs.
    """

    measured: float
    expected: Separations

    @property
    def indistinguishable(self) -> bool:
        return self.expected.indistinguishable > INDISTINGUISHABLE_ODDS


def tell_apart(
    measured: Measured, chain: Chain, width: int, q_start: float, norms: InputNorms, q_star: float
) -> ToldApart | None:
    """Of the pairs of inputs within the first chunk; None for a single input, or activations that are not finite."""
    first, last = (reading.cosines for reading in (measured.readings[0], measured.readings[-1]))
    if not first or not last:
        return None
    cosines, at_end = (found[0].double().cpu().numpy() for found in (first, last))
    if not (np.isfinite(cosines).all() and np.isfinite(at_end).all()):
        return None
    spread = InputCorrelations.from_samples(np.clip(cosines, -1.0, 1.0))
    expected = separations(
        chain, width, len(measured.readings), q_start=q_start, q_star=q_star, norms=norms, correlations=spread
    )
    return ToldApart(float(np.median(1.0 - at_end)), expected)
