"""The rule by which a row of ours agrees with the paper's."""

import math
from dataclasses import replace

import pytest

from hush.reproduce import load_table
from hush.reproduce.agreement import RunEnd, Verdict, judge_row
from hush.reproduce.presets import preset

TABLE = {(r.activation, r.sparsity, r.v_prime): r for r in load_table("table1")}
TRAINED, FAILED = TABLE["crelu", 0.85, 0.7], TABLE["crelu", 0.85, 0.9]  # 0.94 ± 0.004 and 0.28 ± 0.37
MIXED, SECOND = TABLE["shifted_relu", 0.6, 1.0], TABLE["crelu", 0.85, 0.5]  # 0.76 ± 0.37 and 0.78 ± 0.16
GOOD, BAD = RunEnd(0.93, 0.85, 0.94, 0.3), RunEnd(0.1, 0.0, 0.12, 2.31)
HALF, LOST = RunEnd(0.51, 0.85, 0.52, 1.4), RunEnd(0.15, 0.85, 0.7, 2.2)
PAPER = preset("paper", "deep")
OTHER = replace(PAPER, exact=False)


def judge(row: object, *runs: RunEnd, part: str = "dnn", exact: bool = False) -> Verdict:
    return judge_row(row, part, list(runs), PAPER if exact else OTHER)  # type: ignore[arg-type]


def agrees(row: object, *runs: RunEnd, part: str = "dnn", exact: bool = False) -> bool | None:
    return judge(row, *runs, part=part, exact=exact).agrees


def test_a_trained_row_has_no_failed_run() -> None:
    assert agrees(TRAINED, GOOD, GOOD)
    assert agrees(TRAINED, GOOD, BAD) is False
    assert agrees(TRAINED) is None


def test_to_leave_chance_is_not_to_train() -> None:
    half = judge(TRAINED, HALF)
    assert (half.agrees, half.outcome) == (None, "left chance")
    assert half.reason == "mean accuracy 0.510, 0 of 1 failed, the paper: trained"
    assert agrees(TRAINED, GOOD, HALF) is None
    # The paper's rows are judged by their mean, and so are ours.
    assert agrees(TRAINED, GOOD, GOOD, GOOD, RunEnd(0.8, 0.85, 0.8, 0.6))
    assert agrees(TRAINED, BAD, HALF) is False


@pytest.mark.parametrize("accuracy", [0.1, 0.49, 0.5, 0.51, 0.7, 0.84])
def test_no_row_that_the_paper_trains_agrees_below_its_own_bound(accuracy: float) -> None:
    for row in (TRAINED, load_table("table_shallow_clipped")[0]):
        for name in ("quick", "paper"):
            recipe = preset(name, "deep")
            assert judge_row(row, "dnn", [RunEnd(accuracy, 0.85, 0.95, 1.0)], recipe).agrees is not True


def test_a_failed_row_has_more_than_half_of_its_runs_failed() -> None:
    assert agrees(FAILED, BAD)
    assert agrees(FAILED, GOOD, GOOD, BAD, BAD, BAD)
    assert agrees(FAILED, GOOD, BAD) is False
    assert agrees(FAILED, GOOD) is False
    assert agrees(FAILED, HALF) is False


def test_a_mixed_row_is_contradicted_by_nothing() -> None:
    assert agrees(MIXED, GOOD, BAD)
    assert agrees(MIXED, GOOD, BAD, BAD) is None
    assert agrees(MIXED, GOOD, GOOD) is None
    assert agrees(MIXED, BAD) is None


def test_the_second_failure_mode_learns_at_first_and_neither_trains_nor_fails() -> None:
    assert agrees(SECOND, GOOD, LOST) is None
    assert agrees(SECOND, HALF) is None
    assert agrees(SECOND, GOOD, BAD) is False


def test_the_protocol_of_the_paper_is_held_to_its_values() -> None:
    assert agrees(TRAINED, GOOD, exact=True)
    low = RunEnd(0.88, 0.85, 0.9, 0.4)
    assert agrees(TRAINED, low) is True
    assert agrees(TRAINED, low, exact=True) is False
    assert "accuracy is off by 0.060" in judge(TRAINED, low, exact=True).reason
    dense = judge(TRAINED, RunEnd(0.94, 0.80, 0.94, 0.3), exact=True)
    assert dense.agrees is False
    assert "sparsity is off by 0.050" in dense.reason


def test_a_first_epoch_is_judged_by_whether_it_came_apart() -> None:
    probe = preset("probe", "deep")
    apart, nan = RunEnd(0.11, 0.7, 0.11, 2.301), RunEnd(0.1, 0.0, 0.1, math.nan)
    for held in (RunEnd(0.18, 0.85, 0.18, 2.24), RunEnd(0.1, 0.84, 0.1, 2.38), RunEnd(0.4, 0.7, 0.4, 1.7)):
        verdict = judge_row(TRAINED, "dnn", [held], probe)
        assert (verdict.agrees, verdict.outcome) == (True, "held")
        assert judge_row(SECOND, "dnn", [held], probe).agrees
        failed = judge_row(FAILED, "dnn", [held], probe)
        assert (failed.agrees, failed.reason) == (False, "1 of 1 held, the paper: failed")
    for run in (apart, nan):
        verdict = judge_row(TRAINED, "dnn", [run], probe)
        assert (verdict.agrees, verdict.outcome) == (False, "came apart")
        assert judge_row(FAILED, "dnn", [run], probe).agrees


@pytest.mark.parametrize(("accuracy", "expected"), [(0.6, True), (0.1, False)])
def test_a_cnn_row_is_a_single_run(accuracy: float, expected: bool) -> None:
    # CReLU 0.85 with V′ = 0.9 fails as a DNN and trains as a CNN (0.66); CST is the other way round (0.29).
    assert agrees(FAILED, RunEnd(accuracy, 0.8, accuracy, 1.0), part="cnn") is expected
    assert agrees(TABLE["cst", 0.85, 0.9], RunEnd(accuracy, 0.8, accuracy, 1.0), part="cnn") is not expected
    assert agrees(load_table("table_shallow_clipped")[0], GOOD, part="cnn") is None
