import math

import pytest

from hush.train.outcome import Outcome, judge_run, judge_text_run

LN10 = math.log(10)


@pytest.mark.parametrize(
    ("accuracy", "losses", "more", "outcome", "why"),
    [
        (0.50, [2.0, 1.0], {}, Outcome.TRAINED, "at least half"),
        (0.49, [2.0, 1.0], {}, Outcome.NOT_YET, r"it has left chance \(0.1\)"),
        (0.16, [LN10] * 9, {}, Outcome.NOT_YET, "it has left chance"),
        # Half right by chance, while the loss says that it is lost.
        (0.55, [1e3, 1e19], {}, Outcome.NOT_YET, "training loss of 1e\\+19, above the 2.3 of guessing"),
        # At chance, but on its way: the loss of the second half of the run tells.
        (0.10, [2.4, 2.3, 2.29, 2.2], {}, Outcome.NOT_YET, "still falling, by 4% since the middle"),
        # It fell to that of guessing long ago, and stays.
        (0.10, [2.9, 2.4, LN10, LN10, LN10, LN10], {}, Outcome.FAILED, "no longer falls"),
        (0.10, [2.3, 2.4, 2.5, 2.6], {}, Outcome.FAILED, "no longer falls"),
        # Of one epoch nothing is known but its accuracy.
        (0.10, [2.2], {}, Outcome.FAILED, "no longer falls"),
        (0.10, [], {}, Outcome.FAILED, "no longer falls"),
        (0.10, [2.4, 2.2], {"gave_up": True}, Outcome.FAILED, "still at chance"),
        (0.90, [1.0, math.nan], {"diverged": True}, Outcome.DIVERGED, "no longer finite"),
        (0.10, [2.3, math.inf], {}, Outcome.FAILED, "no longer falls"),
    ],
)
def test_outcomes(accuracy: float, losses: list[float], more: dict, outcome: Outcome, why: str) -> None:
    found, sentence = judge_run(accuracy, 10, losses, **more)
    assert found == outcome
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(sentence)


@pytest.mark.parametrize(
    ("loss", "losses", "more", "outcome"),
    [
        (2.0, [3.0, 2.0], {}, Outcome.TRAINED),
        (2.8, [3.0, 2.8], {}, Outcome.NOT_YET),
        (3.4, [5.0, 4.0, 3.4], {}, Outcome.NOT_YET),
        (3.4, [3.4, 3.4, 3.4], {}, Outcome.FAILED),
        (2.8, [3.0, 2.8], {"gave_up": True}, Outcome.FAILED),
        (2.0, [3.0, 2.0], {"diverged": True}, Outcome.DIVERGED),
        (float("nan"), [3.0, 3.0], {}, Outcome.FAILED),
    ],
)
def test_a_text_is_judged_by_what_counting_tells(
    loss: float, losses: list[float], more: dict, outcome: Outcome
) -> None:
    found, why = judge_text_run(loss, 3.1, 2.4, losses, **more)
    assert found == outcome
    assert why
