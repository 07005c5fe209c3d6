"""When a row of ours agrees with the paper's.

    trained              every seed of ours trained (the paper's mean of 0.85 or more leaves no room for a failed seed)
    failed               fewer than half of our seeds trained (a mean below 0.5 is at most two trained seeds of five)
    mixed                some of our seeds trained and some did not; with all or none there is no verdict: both happened
                         in the paper, and few seeds cannot contradict it
    second failure mode  every seed of ours left chance at some time: the paper says of these rows that "performance
                         does improve during training for all of the five runs", and that it is lost again later

A run that a preset cuts short has come apart when it is not a number, or when its loss is not a percent below that of
guessing *and* its sparsity is off by more than 0.03; else it holds, and counts as trained. Some rows take more than an
epoch to get below the loss of guessing, but those that fail lose their sparsity at once.

A trained row under the paper's own protocol must also be within the tolerances below of its printed accuracy and
sparsity. A CNN row of the paper is a single run: it trained if it got half of the images right, else it failed.
"""

import math
from dataclasses import dataclass

from hush.reproduce.paper import Outcome, PaperRow
from hush.reproduce.presets import Preset

__all__ = ["ACCURACY_TOLERANCE", "LEFT_CHANCE", "SPARSITY_TOLERANCE", "Seed", "Verdict", "expected", "judge", "near"]

# Three times the usual standard deviation printed for a row that trained throughout (0.01), rounding included: the
# batch size and the head, which the paper does not give, move the accuracy after 200 epochs as another seed would.
ACCURACY_TOLERANCE = 0.03
# What hush promises of a trained network: its sparsity within 0.02 of the target.
SPARSITY_TOLERANCE = 0.02
# Twice what guessing one of ten classes scores.
LEFT_CHANCE = 0.2
# Of a run that is cut short: the printed standard deviations of rows that trained are 0.02 at most.
_HELD = 0.03
_CLASSES = 10  # of every data set of the paper


@dataclass(frozen=True)
class Seed:
    """What counts of a finished run: how it ended on the test set, and the best it ever was on the validation set."""

    accuracy: float
    sparsity: float
    best: float
    loss: float


@dataclass(frozen=True)
class Verdict:
    """Whether a row agrees, None where it cannot be said, and the reason in words."""

    agrees: bool | None
    reason: str


def expected(row: PaperRow, part: str) -> Outcome | None:
    """What the paper reports for this row; None where it has no such run."""
    if part == "dnn":
        return row.outcome
    if row.cnn_accuracy is None:
        return None
    return Outcome.TRAINED if row.cnn_accuracy >= 0.5 else Outcome.FAILED


def near(mean: float, printed: float, spread: float, tolerance: float) -> bool:
    """Within the tolerance, or within two of the paper's own standard deviations where that is more."""
    return abs(mean - printed) <= max(tolerance, 2.0 * spread)


def judge(row: PaperRow, part: str, seeds: list[Seed], recipe: Preset) -> Verdict:
    """Our seeds of a row against the paper's; an exact recipe holds them to its figures too."""
    outcome = expected(row, part)
    if outcome is None:
        return Verdict(None, "the paper has no such run")
    if not seeds:
        return Verdict(None, "not run yet")
    trained = sum(_trained(seed, row, recipe) for seed in seeds)
    did = "held" if recipe.cut_short else "trained"
    said = f"{trained} of {len(seeds)} {did}, the paper: {outcome.value}"
    if outcome is Outcome.MIXED:
        return Verdict(True if 0 < trained < len(seeds) else None, said)
    if outcome is Outcome.SECOND_FAILURE_MODE:
        left = sum(seed.best >= LEFT_CHANCE or _trained(seed, row, recipe) for seed in seeds)
        return Verdict(left == len(seeds), f"{left} of {len(seeds)} left chance, the paper: {outcome.value}")
    if outcome is Outcome.FAILED:
        return Verdict(2 * trained < len(seeds), said)
    if trained < len(seeds) or not recipe.exact:
        return Verdict(trained == len(seeds), said)
    accuracy, sparsity = printed(row, part)
    mean = [sum(getattr(s, name) for s in seeds) / len(seeds) for name in ("accuracy", "sparsity")]
    if not near(mean[0], *accuracy, ACCURACY_TOLERANCE):
        return Verdict(False, f"{said}, but its accuracy is off by {abs(mean[0] - accuracy[0]):.3f}")
    if not near(mean[1], *sparsity, SPARSITY_TOLERANCE):
        return Verdict(False, f"{said}, but its sparsity is off by {abs(mean[1] - sparsity[0]):.3f}")
    return Verdict(True, said)


def _trained(seed: Seed, row: PaperRow, recipe: Preset) -> bool:
    if not recipe.cut_short:
        return seed.accuracy >= recipe.trained_at
    return seed.loss < 0.99 * math.log(_CLASSES) or abs(seed.sparsity - row.sparsity) <= _HELD


def printed(row: PaperRow, part: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """((accuracy, its std), (sparsity, its std)) as the paper prints them; a single CNN run has no spread."""
    if part == "dnn":
        return (row.accuracy_mean, row.accuracy_std), (row.sparsity_mean, row.sparsity_std)
    assert row.cnn_accuracy is not None
    assert row.cnn_sparsity is not None
    return (row.cnn_accuracy, 0.0), (row.cnn_sparsity, 0.0)
