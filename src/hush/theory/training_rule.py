"""The calibrated rule: when a gradient explodes or vanishes, and when a network does not train.

A gradient *explodes* when its gain |δ_l|²/|δ_L|² exceeds 1000 at some layer, that is when its norm grows thirtyfold; a
network does not train when that happens to more than one in ten pairs of initialisation and input. Both numbers were
chosen once, on the rows of the paper's tables (docs/theory.md shows every row).
"""

from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array

__all__ = [
    "DISTINGUISHABLE",
    "EXPLODING_GAIN_LOG10",
    "LEVELS",
    "SPARSITY_TOLERANCE",
    "TRAINABLE_ODDS",
    "TYPICAL_CORRELATION",
    "VANISHING_GAIN_LOG10",
    "Outcome",
    "judge_gains",
]

EXPLODING_GAIN_LOG10 = 3.0
# A convention: no row of the paper's tables failed by vanishing.
VANISHING_GAIN_LOG10 = -6.0
TRAINABLE_ODDS = 0.1
# Two inputs of the first correlation are told apart at the end while D = (1 − ρ_L)(1 − s) is above the second: among
# the rows of the paper's tables that do not explode, those below it trained slowly, unstably or not at all.
TYPICAL_CORRELATION = 0.3
DISTINGUISHABLE = 3e-4
# A layer has lost its sparsity when it is further than this from the design's.
SPARSITY_TOLERANCE = 0.02

# The quantiles that are reported.
LEVELS = (0.05, 0.1, 0.5, 0.9, 0.95)


@dataclass(frozen=True)
class Outcome:
    """What became of the gradients of many initialisations and inputs.

    Attributes:
        gain_log10: quantiles of log10 of the end-to-end gain |δ_1|²/|δ_L|², by level.
        explode, vanish: the share that did.
    """

    gain_log10: dict[float, float]
    explode: float
    vanish: float


def judge_gains(gains: Array) -> Outcome:
    """The outcome of log10 gains from the last layer to layers 1 … depth − 1, of shape (layers, samples)."""
    total = gains[0]
    return Outcome(
        {level: float(v) for level, v in zip(LEVELS, np.quantile(total, LEVELS), strict=True)},
        float(np.mean(gains.max(0) > EXPLODING_GAIN_LOG10)),
        float(np.mean(total < VANISHING_GAIN_LOG10)),
    )
