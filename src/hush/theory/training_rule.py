"""The calibrated rules: when a gradient explodes or vanishes, and when a network does not train.

**A plain chain.** A gradient *explodes* when its gain |δ_l|²/|δ_L|² exceeds 1000 at some layer, that is when its norm grows thirtyfold; a
network does not train when that happens to more than one in ten pairs of initialisation and input. Both numbers were
chosen once, on the rows of the paper's tables (docs/theory.md shows every row).

**A residual network** is judged by four figures (`BlockFigures`) and one bound for each (`judge_blocks`). The bounds were
chosen on one half of a list of short trainings and tried on the other (docs/will-it-train.md gives both shares;
`python -m benchmarks.block_outcomes --rule` prints them).
"""

import math
from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array

__all__ = [
    "EXPLODING_GAIN_LOG10",
    "LEVELS",
    "TRAINABLE_ODDS",
    "VANISHING_GAIN_LOG10",
    "BlockBounds",
    "BlockFigures",
    "BlockVerdict",
    "Outcome",
    "judge_blocks",
    "judge_gains",
]

EXPLODING_GAIN_LOG10 = 3.0
# A convention: no row of the paper's tables failed by vanishing.
VANISHING_GAIN_LOG10 = -6.0
TRAINABLE_ODDS = 0.1

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


@dataclass(frozen=True)
class BlockFigures:
    """What the rule asks of a residual network at initialisation, measured on a batch of data or predicted.

    Attributes:
        highest_gain_log10: the largest, over the blocks, of log10 |δ_l|²/|δ_L|²: δ_l the gradient at the pre-activation
            of block l, L the last block to which one comes; the median over the inputs.
        first_gain_log10: the same at the first block; −∞ if no gradient comes there.
        output_log10: log10 of the mean square of the network's outputs, before any softmax.
        correlation: the mean cosine between two inputs' vectors in what the head reads, behind the last norm.
        sparsity: the mean share of zeros behind φ; None where φ gives no zeros.
        target_sparsity: what the design asked for; None if it asked for nothing.
    """

    highest_gain_log10: float
    first_gain_log10: float
    output_log10: float
    correlation: float
    sparsity: float | None = None
    target_sparsity: float | None = None

    @property
    def difference_log10(self) -> float:
        """log10(1 − ρ), how much of what the head reads tells two inputs apart; −∞ for nothing."""
        left = 1.0 - self.correlation
        return math.log10(left) if left > 0.0 else -math.inf if left <= 0.0 else math.nan


@dataclass(frozen=True)
class BlockBounds:
    """What the figures of a residual network keep to if it trains.

    The upper bounds on gain and outputs and the lower bound on log10(1 − ρ) were chosen on trained networks, as was the
    distance from its target at which sparsity counts as lost. The lower bound on the gain at the first block is the
    chain's: wherever a gradient vanished, the inputs had become indistinguishable too.
    """

    highest_gain_log10: float = 4.25
    first_gain_log10: float = VANISHING_GAIN_LOG10
    output_log10: float = 1.5
    difference_log10: float = -2.5
    sparsity: float = 0.1


@dataclass(frozen=True)
class BlockVerdict:
    """What is wrong with a residual network, with a reason in words for each thing that is.

    `sparsity_lost` says nothing about training: a branch that gives out zeros only leaves the stream, which trains on as
    a shallow network.
    """

    explodes: bool
    vanishes: bool
    indistinguishable: bool
    sparsity_lost: bool
    reasons: tuple[str, ...]

    @property
    def trains(self) -> bool:
        return not (self.explodes or self.vanishes or self.indistinguishable)


def judge_blocks(figures: BlockFigures, bounds: BlockBounds = BlockBounds()) -> BlockVerdict:  # noqa: B008 (frozen)
    """Explodes, vanishes, indistinguishable, sparsity lost: each with its reason.

    A figure that is not a number, as an overflow leaves it, keeps to no bound.
    """
    gain_explodes = not figures.highest_gain_log10 <= bounds.highest_gain_log10
    output_explodes = not figures.output_log10 <= bounds.output_log10
    vanishes = not figures.first_gain_log10 >= bounds.first_gain_log10
    indistinguishable = not figures.difference_log10 >= bounds.difference_log10
    lost = (
        figures.sparsity is not None
        and figures.target_sparsity is not None
        and not abs(figures.sparsity - figures.target_sparsity) <= bounds.sparsity
    )
    reasons = []
    if gain_explodes:
        reasons.append(
            f"the squared gradient grows by 10^{figures.highest_gain_log10:.1f} on its way back through the blocks "
            f"(at most 10^{bounds.highest_gain_log10:g})"
        )
    if output_explodes:
        reasons.append(
            f"the outputs have a mean square of 10^{figures.output_log10:.1f} (at most 10^{bounds.output_log10:g})"
        )
    if vanishes:
        reasons.append(
            f"the squared gradient arrives at the first block multiplied by 10^{figures.first_gain_log10:.1f} (at least "
            f"10^{bounds.first_gain_log10:g})"
        )
    if indistinguishable:
        reasons.append(
            f"inputs become indistinguishable: two of them differ in 10^{figures.difference_log10:.1f} of what the head "
            f"reads (at least 10^{bounds.difference_log10:g})"
        )
    if lost:
        reasons.append(
            f"{figures.sparsity:.3f} of the units are zero where the design asked for {figures.target_sparsity:.3f}"
        )
    return BlockVerdict(gain_explodes or output_explodes, vanishes, indistinguishable, lost, tuple(reasons))
