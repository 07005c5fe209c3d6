"""The figures that the rule for networks of blocks asks for, from what was measured, and its verdict."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from hush.diagnose.diagnosis import Layer
from hush.diagnose.measure import Measured
from hush.theory import Design
from hush.theory.training_rule import BlockFigures, BlockVerdict, judge_blocks

__all__ = ["judge_model"]


def judge_model(
    measured: Measured, layers: tuple[Layer, ...], gains: NDArray[np.float64], design: Design | None
) -> BlockVerdict | None:
    """None for a single input, whose correlation with others is not known, outputs that cannot be told apart, or no
    gradient anywhere, as behind a head whose weights are all zero."""
    if not np.isfinite(gains).any() and not (gains == np.inf).any():
        return None
    head = measured.head if measured.head is not None and measured.head.correlation is not None else measured.output
    if head.correlation is None or not measured.output.q:
        return None
    sparse = [layer.sparsity for layer in layers if layer.sparsity > 0.0]
    figures = BlockFigures(
        highest_gain_log10=max(_median(row) for row in gains),
        first_gain_log10=_median(gains[0]),
        output_log10=_log10(float(torch.cat(measured.output.q).mean())),
        correlation=head.correlation,
        sparsity=sum(sparse) / len(sparse) if sparse else None,
        target_sparsity=None if design is None else design.sparsity,
    )
    return judge_blocks(figures)


def _median(row: NDArray[np.float64]) -> float:
    return float(np.median(row))


def _log10(value: float) -> float:
    return math.log10(value) if value > 0.0 else -math.inf if value == 0.0 else math.nan
