"""The figures that the rule for networks of blocks asks for, from what was measured, and its verdict."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from hush.diagnose.diagnosis import Layer
from hush.diagnose.measure import Measured
from hush.theory import Design
from hush.theory.training_rule import BlockBounds, BlockFigures, BlockVerdict, judge_blocks

__all__ = ["judge_model"]


# BatchNorm divides by what tells inputs apart, however little that is: networks with it were seen to train far beyond
# the bound that was chosen on networks without.
_WITH_BATCH_NORM = BlockBounds(difference_log10=-math.inf)


def judge_model(
    measured: Measured, layers: tuple[Layer, ...], gains: NDArray[np.float64], design: Design | None, batched: bool
) -> BlockVerdict | None:
    """None for a single input, whose correlation with others is not known, outputs that cannot be told apart, or no
    gradient anywhere, as behind a head whose weights are all zero.

    A block to which no gradient comes is left out, as the rule asks. With `batched`, where BatchNorm worked by the
    batch, whether inputs become indistinguishable is not judged.
    """
    by_block = [found for row in gains if (found := _median(row)) is not None]
    if not by_block:
        return None
    head = measured.head if measured.head is not None and measured.head.correlation is not None else measured.output
    if head.correlation is None or not measured.output.q:
        return None
    sparse = [layer.sparsity for layer in layers if layer.sparsity > 0.0]
    figures = BlockFigures(
        highest_gain_log10=max(by_block),
        first_gain_log10=by_block[0],
        output_log10=_log10(float(torch.cat(measured.output.q).mean())),
        correlation=head.correlation,
        sparsity=sum(sparse) / len(sparse) if sparse else None,
        target_sparsity=None if design is None else design.sparsity,
    )
    return judge_blocks(figures, _WITH_BATCH_NORM if batched else BlockBounds())


def _median(row: NDArray[np.float64]) -> float | None:
    """Over the inputs that send a gradient here; None where none does."""
    arrived = row[row != -np.inf]
    return float(np.median(arrived)) if len(arrived) else None


def _log10(value: float) -> float:
    return math.log10(value) if value > 0.0 else -math.inf if value == 0.0 else math.nan
