"""The calibrated rules: when a gradient explodes or vanishes, and when a network does not train.

**A plain chain.** A gradient *explodes* when its gain |δ_l|²/|δ_L|² exceeds 1000 at some layer, that is when its norm
grows thirtyfold; a network does not train when that happens to more than one in ten pairs of initialisation and input.
Two inputs become *indistinguishable* when 1 − ρ behind the last layer is below `separation_bound`; a network does not
train when that happens to more than half of the pairs of inputs. One exploding input in ten spoils every step; two
inputs that cannot be told apart spoil only what concerns them, so there the typical pair decides. The numbers were
chosen on the rows of the paper's tables, and tried on those they were not chosen on
(docs/results/two_failure_modes.md).

**A residual network** is judged by four figures (`BlockFigures`), with one bound for each (`BlockBounds`). The bounds
were chosen on one half of a list of short trainings and tried on the other: docs/will-it-train.md gives both shares,
and `python -m benchmarks.block_outcomes --rule` prints them.
"""

import math
from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array

__all__ = [
    "DISTINGUISHABLE_LOG10",
    "EXPLODING_BLOCK_GAIN_LOG10",
    "EXPLODING_GAIN_LOG10",
    "INDISTINGUISHABLE_ODDS",
    "KEPT_DIFFERENCE",
    "LEVELS",
    "SPARSITY_TOLERANCE",
    "TRAINABLE_ODDS",
    "TYPICAL_CORRELATION",
    "VANISHING_GAIN_LOG10",
    "BlockBounds",
    "BlockFigures",
    "BlockVerdict",
    "Outcome",
    "judge_blocks",
    "judge_gains",
    "separation_bound",
]

EXPLODING_GAIN_LOG10 = 3.0
# A convention: no row of the paper's tables failed by vanishing.
VANISHING_GAIN_LOG10 = -6.0
TRAINABLE_ODDS = 0.1
# Of a chain: what (1 − ρ) E[φ′²] L² must be at the least, and for which share of the pairs of inputs it may be less.
# The 30-layer tables alone give 0.052 and the 100-layer one 0.042; this is between the two.
KEPT_DIFFERENCE = 0.047
INDISTINGUISHABLE_ODDS = 0.5
# Of a residual network: chosen on trained ones, as `BlockBounds` says.
EXPLODING_BLOCK_GAIN_LOG10 = 4.25
DISTINGUISHABLE_LOG10 = -2.5
# How correlated two typical inputs are where a design is judged before there is data.
TYPICAL_CORRELATION = 0.3
# A layer has lost its sparsity when it is further than this from the design's.
SPARSITY_TOLERANCE = 0.02
# A mean of cosines may pass 1 by so much.
_ROUNDING = 1e-6

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


def judge_gains(gains: Array, exploding: float = EXPLODING_GAIN_LOG10) -> Outcome:
    """The outcome of log10 gains from the last layer to layers 1 … depth − 1, of shape (layers, samples)."""
    total = gains[0]
    return Outcome(
        {level: float(v) for level, v in zip(LEVELS, np.quantile(total, LEVELS), strict=True)},
        float(np.mean(gains.max(0) > exploding)),
        float(np.mean(total < VANISHING_GAIN_LOG10)),
    )


def separation_bound(passing: float, depth: int) -> float:
    """The least 1 − ρ with which a chain of this depth still tells two inputs apart: KEPT_DIFFERENCE/(μ₁L²).

    (1 − ρ)μ₁, with μ₁ = E[φ′²] the share of units that pass a difference on, is the mean square by which the
    activations of two inputs differ, in units of 2q; and on the Edge of Chaos 1 − ρ of a wide network falls as 1/L²
    whatever φ is, as long as it has kinks, so that L² takes out what depth alone does. In shallow chains, of which the
    tables have none, the bound is at most that of residual networks, 10^−2.5.

    Arguments:
        passing: E[φ′²] at q*; on the Edge of Chaos 1/σ_w².
    """
    most: float = 10.0**DISTINGUISHABLE_LOG10
    return min(KEPT_DIFFERENCE / (passing * depth * depth), most) if passing > 0.0 else most


@dataclass(frozen=True)
class BlockFigures:
    """What the rule asks of a residual network at initialisation, measured on a batch of data or predicted.

    A block to which no gradient comes at all because its units are all silent is left out of the gains: the stream goes
    past it. If all of them are, the gains are 0.

    Attributes:
        highest_gain_log10: the largest, over the blocks, of log10 |δ_l|²/|δ_L|²: δ_l the gradient at the pre-activation
            of block l, L the last block; the median over the inputs.
        first_gain_log10: the same at the first block.
        output_log10: log10 of the mean square of the network's outputs, before any softmax.
        correlation: the mean cosine between two inputs' vectors in what the head reads, behind the last norm.
        sparsity: the mean share of zeros behind φ; None where φ gives no zeros.
        target_sparsity: what the design asked for; None if it asked for nothing.

    Raises:
        ValueError: if the correlation is beyond ±1, or a sparsity beyond 0 and 1.
    """

    highest_gain_log10: float
    first_gain_log10: float
    output_log10: float
    correlation: float
    sparsity: float | None = None
    target_sparsity: float | None = None

    def __post_init__(self) -> None:
        if abs(self.correlation) > 1.0 + _ROUNDING:
            raise ValueError(f"correlation must lie between -1 and 1, got {self.correlation}.")
        for name in ("sparsity", "target_sparsity"):
            share = getattr(self, name)
            if share is not None and not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} must lie between 0 and 1, got {share}.")

    @property
    def difference_log10(self) -> float:
        """log10(1 − ρ), how much of what the head reads tells two inputs apart; −∞ for nothing."""
        if math.isnan(self.correlation):
            return math.nan
        return math.log10(1.0 - self.correlation) if self.correlation < 1.0 else -math.inf


@dataclass(frozen=True)
class BlockBounds:
    """What the figures of a residual network keep to if it trains.

    The upper bounds on gain and outputs and the lower bound on log10(1 − ρ) were chosen on trained networks, as was the
    distance from its target at which sparsity counts as lost. The lower bound on the gain at the first block is the
    chain's: wherever a gradient vanished, the inputs had become indistinguishable too.
    """

    highest_gain_log10: float = EXPLODING_BLOCK_GAIN_LOG10
    first_gain_log10: float = VANISHING_GAIN_LOG10
    output_log10: float = 1.5
    difference_log10: float = DISTINGUISHABLE_LOG10
    sparsity: float = 0.1


@dataclass(frozen=True)
class BlockVerdict:
    """What is wrong with a residual network, with a reason in words for each thing that is.

    `sparsity_lost` says nothing about training: branches that give out zeros only leave the stream, which trains as a
    shallow network does.
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

    A figure that is not a number is what an overflow leaves: the network explodes.
    """
    gain, first, output, difference = (
        figures.highest_gain_log10,
        figures.first_gain_log10,
        figures.output_log10,
        figures.difference_log10,
    )
    reasons = []
    explodes = vanishes = indistinguishable = lost = False
    if any(map(math.isnan, (gain, first, output, difference))):
        explodes = True
        reasons.append("activations or gradients are no longer finite")
    if gain > bounds.highest_gain_log10:
        explodes = True
        reasons.append(
            f"the squared gradient grows to {_power(gain)} times on its way back through the blocks "
            f"(at most {_power(bounds.highest_gain_log10)})"
        )
    if output > bounds.output_log10:
        explodes = True
        reasons.append(f"the outputs have a mean square of {_power(output)} (at most {_power(bounds.output_log10)})")
    if first < bounds.first_gain_log10:
        vanishes = True
        reasons.append(
            f"{_power(first)} of the squared gradient arrives at the first block "
            f"(at least {_power(bounds.first_gain_log10)})"
        )
    if difference < bounds.difference_log10:
        indistinguishable = True
        reasons.append(
            f"inputs become indistinguishable: {_power(difference)} of what the head reads tells two of them apart "
            f"(at least {_power(bounds.difference_log10)})"
        )
    if figures.sparsity is not None and figures.target_sparsity is not None:
        lost = abs(figures.sparsity - figures.target_sparsity) > bounds.sparsity
        if lost:
            reasons.append(
                f"{figures.sparsity:.3f} of the units are zero, and {figures.target_sparsity:.3f} were asked for"
            )
    return BlockVerdict(explodes, vanishes, indistinguishable, lost, tuple(reasons))


def _power(log10: float) -> str:
    """3.25 → "10^3.25", 11.618 → "10^11.62", −∞ → "0"."""
    return "0" if log10 == -math.inf else "infinitely many" if log10 == math.inf else f"10^{round(log10, 2):g}"
