"""What came of a run, in one word and one sentence, from what it recorded."""

import math
from collections.abc import Sequence
from enum import StrEnum

__all__ = ["Outcome", "judge_run", "judge_text_run"]

# At least so much of the test set right is trained.
_HALF = 0.5
# So many times as often right as by guessing is above chance.
_ABOVE_CHANCE = 1.5
# The training loss falls if it lost more than this share since the middle of the run.
_FALLS = 0.01


class Outcome(StrEnum):
    """How a finished run ended.

    TRAINED: at least half of the test set right, and a training loss below that of guessing; of a text, a loss below
        what pairs of bytes tell.
    NOT_YET: its epochs are over before that, but it has left chance, or its training loss was still falling.
    FAILED: at chance, and the loss no longer moves (or the run was told to give up there).
    DIVERGED: a loss or a gradient is no longer finite.
    """

    TRAINED = "trained"
    NOT_YET = "not yet trained"
    FAILED = "failed"
    DIVERGED = "diverged"


def judge_run(
    accuracy: float, classes: int, train_losses: Sequence[float], *, diverged: bool = False, gave_up: bool = False
) -> tuple[Outcome, str]:
    """The outcome, and why in a sentence.

    Arguments:
        accuracy: on the test set.
        train_losses: the mean training loss of each epoch.
    """
    chance = 1.0 / classes
    if diverged:
        return Outcome.DIVERGED, "a loss or a gradient is no longer finite"
    if accuracy >= _HALF and (not train_losses or train_losses[-1] < math.log(classes)):
        return Outcome.TRAINED, "at least half of the test set is right"
    if accuracy >= _HALF:
        loss = f"a training loss of {train_losses[-1]:.3g}, above the {math.log(classes):.3g} of guessing"
        return Outcome.NOT_YET, f"at least half of the test set is right, but with {loss}"
    if gave_up:
        return Outcome.FAILED, f"still at chance ({chance:.3g}) after as many epochs as it was given for that"
    if accuracy > _ABOVE_CHANCE * chance:
        return Outcome.NOT_YET, f"it has left chance ({chance:.3g}), but its epochs are over"
    if (fall := _fall(train_losses)) > _FALLS:
        return Outcome.NOT_YET, f"the training loss was still falling, by {fall:.0%} since the middle of the run"
    return Outcome.FAILED, f"it is at chance ({chance:.3g}), and the training loss no longer falls"


def judge_text_run(
    loss: float,
    single: float,
    pair: float,
    train_losses: Sequence[float],
    *,
    diverged: bool = False,
    gave_up: bool = False,
) -> tuple[Outcome, str]:
    """The same for a network that learns a text: what it must beat is counting bytes, alone and in pairs.

    Arguments:
        loss: on the test set, in nats per byte.
        single, pair: what counting single bytes, and pairs of them, comes to in the training set.
    """
    if diverged:
        return Outcome.DIVERGED, "a loss or a gradient is no longer finite"
    if loss < pair:
        return Outcome.TRAINED, f"it tells more of the next byte than the one before it does ({pair:.3f} nats)"
    if gave_up:
        return Outcome.FAILED, "still at chance after as many epochs as it was given for that"
    if loss < single:
        return Outcome.NOT_YET, f"it beats counting bytes ({single:.3f} nats), but not pairs of them ({pair:.3f})"
    if (fall := _fall(train_losses)) > _FALLS:
        return Outcome.NOT_YET, f"the training loss was still falling, by {fall:.0%} since the middle of the run"
    return Outcome.FAILED, f"it does not beat counting bytes ({single:.3f} nats), and the training loss no longer falls"


def _fall(losses: Sequence[float]) -> float:
    """Which share of the training loss has gone since the middle of the run; of a single epoch nothing is known."""
    middle, last = (losses[(len(losses) - 1) // 2], losses[-1]) if losses else (math.nan, math.nan)
    fall = 1.0 - last / middle if middle else 0.0
    return fall if math.isfinite(fall) else 0.0
