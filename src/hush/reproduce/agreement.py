"""When a row of ours agrees with the paper's: whoever trains there trains here, whoever fails there fails here.

A run of a fully connected network has failed when less than half of its test images are right. Our runs of a row

    trained      when none failed and their mean accuracy is 0.85 or more: the mean from which the paper's row counts as
                 trained, too
    left chance  when none failed and their mean is lower: they learn, and have not come as far as the paper's
    failed       when more than half of them did: a mean below 0.5 in the paper is at most two trained runs of five
    mixed        when some did, but not more than half

and the row agrees with one that the paper reports

    trained              when ours trained; it disagrees when a run failed; where ours left chance there is no verdict
    failed               when ours failed; else it disagrees
    mixed                when ours are mixed; else there is no verdict: both happened in the paper, and few runs cannot
                         contradict it
    second failure mode  never: such a row neither trains nor fails. It disagrees when a run was never past one half:
                         the paper says of these rows that "performance does improve during training for all of the five
                         runs", and that it is lost again later

A CNN row of the paper is a single run with an accuracy of 0.63 to 0.71, or at most 0.31: both bounds are 0.5 there.

A run that a preset cuts short has *come apart* when it is not a number, or when its loss is not a percent below that
of guessing *and* its sparsity is off by more than 0.03; else it *holds*. Some rows take more than an epoch to get below
the loss of guessing, but those that fail lose their sparsity at once. Such a row is consistent with the paper's when it
holds where the paper trains and comes apart where the paper fails. That is no statement on accuracies, and is never
marked as one.

A trained row under the paper's own protocol must also be within the tolerances below of its printed accuracy and
sparsity.
"""

import math
import statistics
from dataclasses import dataclass
from typing import NamedTuple

from hush.reproduce.paper import Outcome, PaperRow
from hush.reproduce.presets import Preset

__all__ = [
    "ACCURACY_TOLERANCE",
    "HELD",
    "SPARSITY_TOLERANCE",
    "PrintedValue",
    "RunEnd",
    "Verdict",
    "expected_outcome",
    "judge_row",
    "near",
    "printed_values",
]

# Three times the usual standard deviation printed for a row that trained throughout (0.01), rounding included: the
# batch size and the head, which the paper does not give, move the accuracy after 200 epochs as another seed would.
ACCURACY_TOLERANCE = 0.03
# What hush promises of a trained network: its sparsity within 0.02 of the target.
SPARSITY_TOLERANCE = 0.02
# From s, at most, where zeros count as held: the printed standard deviations of rows that trained are 0.02 at most.
HELD = 0.03
_CLASSES = 10  # of every data set of the paper


class _Bounds(NamedTuple):
    """Test accuracies: below the first a run failed; from the second on the mean of runs without failures trained."""

    failed_below: float
    trained_from: float


_BOUNDS = {"dnn": _Bounds(0.5, 0.85), "cnn": _Bounds(0.5, 0.5)}


class PrintedValue(NamedTuple):
    """A mean and its standard deviation as the paper prints them; a single run has no spread."""

    mean: float
    std: float


@dataclass(frozen=True)
class RunEnd:
    """What counts of a finished run: how it ended on the test set, and the best it ever was on the validation set."""

    accuracy: float
    sparsity: float
    best: float
    loss: float


@dataclass(frozen=True)
class Verdict:
    """What our runs of a row came to, and whether that agrees with the paper.

    Attributes:
        agrees: None where it cannot be said.
        outcome: of our runs, in a word or two: trained, failed, left chance, mixed, held, came apart; or why there is
            none.
        reason: in words, with the counts.
    """

    agrees: bool | None
    outcome: str
    reason: str


def expected_outcome(row: PaperRow, part: str) -> Outcome | None:
    """What the paper reports for this row; None where it has no such run."""
    if part == "dnn":
        return row.outcome
    if row.cnn_accuracy is None:
        return None
    return Outcome.TRAINED if row.cnn_accuracy >= _BOUNDS["cnn"].trained_from else Outcome.FAILED


def near(mean: float, printed: PrintedValue, tolerance: float) -> bool:
    """Within the tolerance, or within two of the paper's own standard deviations where that is more."""
    return abs(mean - printed.mean) <= max(tolerance, 2.0 * printed.std)


def printed_values(row: PaperRow, part: str) -> tuple[PrintedValue, PrintedValue]:
    """(accuracy, sparsity) as the paper prints them."""
    if part == "dnn":
        return PrintedValue(row.accuracy_mean, row.accuracy_std), PrintedValue(row.sparsity_mean, row.sparsity_std)
    assert row.cnn_accuracy is not None
    assert row.cnn_sparsity is not None
    return PrintedValue(row.cnn_accuracy, 0.0), PrintedValue(row.cnn_sparsity, 0.0)


def judge_row(row: PaperRow, part: str, runs: list[RunEnd], recipe: Preset) -> Verdict:
    """Our runs of a row against the paper's; an exact recipe holds them to its values too."""
    paper = expected_outcome(row, part)
    if paper is None:
        return Verdict(None, "no such run in the paper", "the paper has no such run")
    if not runs:
        return Verdict(None, "not run yet", "not run yet")
    if recipe.cut_short:
        return _judge_cut_short(row, paper, runs)
    return _judge_whole(row, part, paper, runs, recipe)


def _judge_cut_short(row: PaperRow, paper: Outcome, runs: list[RunEnd]) -> Verdict:
    held = sum(_holds(run, row) for run in runs)
    outcome = "held" if held == len(runs) else "came apart" if not held else "mixed"
    reason = f"{held} of {len(runs)} held, the paper: {paper.value}"
    if paper is Outcome.MIXED:
        return Verdict(True if outcome == "mixed" else None, outcome, reason)
    if paper is Outcome.FAILED:
        return Verdict(2 * held < len(runs), outcome, reason)
    return Verdict(held == len(runs), outcome, reason)


def _holds(run: RunEnd, row: PaperRow) -> bool:
    return run.loss < 0.99 * math.log(_CLASSES) or abs(run.sparsity - row.sparsity) <= HELD


def _judge_whole(row: PaperRow, part: str, paper: Outcome, runs: list[RunEnd], recipe: Preset) -> Verdict:
    bounds = _BOUNDS[part]
    mean = statistics.fmean(run.accuracy for run in runs)
    failed = sum(run.accuracy < bounds.failed_below for run in runs)
    outcome = "trained" if mean >= bounds.trained_from else "left chance"
    if failed:
        outcome = "failed" if 2 * failed > len(runs) else "mixed"
    reason = f"mean accuracy {mean:.3f}, {failed} of {len(runs)} failed, the paper: {paper.value}"
    if paper is Outcome.MIXED:
        return Verdict(True if outcome == "mixed" else None, outcome, reason)
    if paper is Outcome.FAILED:
        return Verdict(outcome == "failed", outcome, reason)
    if paper is Outcome.SECOND_FAILURE_MODE:
        rose = sum(max(run.best, run.accuracy) >= bounds.failed_below for run in runs)
        reason += f"; {rose} past {bounds.failed_below:g} at some time"
        return Verdict(None if rose == len(runs) else False, outcome, reason)
    if outcome != "trained":
        return Verdict(False if failed else None, outcome, reason)
    return _held_to_printed_values(row, part, runs, outcome, reason) if recipe.exact else Verdict(True, outcome, reason)


def _held_to_printed_values(row: PaperRow, part: str, runs: list[RunEnd], outcome: str, reason: str) -> Verdict:
    accuracy, sparsity = printed_values(row, part)
    mean = statistics.fmean(run.accuracy for run in runs)
    if not near(mean, accuracy, ACCURACY_TOLERANCE):
        return Verdict(False, outcome, f"{reason}, but its accuracy is off by {abs(mean - accuracy.mean):.3f}")
    mean = statistics.fmean(run.sparsity for run in runs)
    if not near(mean, sparsity, SPARSITY_TOLERANCE):
        return Verdict(False, outcome, f"{reason}, but its sparsity is off by {abs(mean - sparsity.mean):.3f}")
    return Verdict(True, outcome, reason)
