"""The rule by which a row of ours agrees with the paper's."""

import math
from dataclasses import replace

import pytest

from hush.reproduce import load_table
from hush.reproduce.agreement import Seed, judge
from hush.reproduce.presets import preset

TABLE = {(r.activation, r.sparsity, r.v_prime): r for r in load_table("table1")}
TRAINED, FAILED = TABLE["crelu", 0.85, 0.7], TABLE["crelu", 0.85, 0.9]  # 0.94 ± 0.004 and 0.28 ± 0.37
MIXED, SECOND = TABLE["shifted_relu", 0.6, 1.0], TABLE["crelu", 0.85, 0.5]  # 0.76 ± 0.37 and 0.78 ± 0.16
GOOD, BAD, LOST = Seed(0.93, 0.85, 0.94, 0.3), Seed(0.1, 0.0, 0.12, 2.31), Seed(0.15, 0.85, 0.7, 2.2)
PAPER = preset("paper", "deep")
OTHER = replace(PAPER, exact=False)


def agrees(row: object, *seeds: Seed, part: str = "dnn", exact: bool = False) -> bool | None:
    return judge(row, part, list(seeds), PAPER if exact else OTHER).agrees  # type: ignore[arg-type]


def test_a_trained_row_has_no_failed_seed() -> None:
    assert agrees(TRAINED, GOOD, GOOD)
    assert agrees(TRAINED, GOOD, BAD) is False
    assert agrees(TRAINED) is None


def test_a_failed_row_trains_less_than_half_of_its_seeds() -> None:
    assert agrees(FAILED, BAD)
    assert agrees(FAILED, GOOD, GOOD, BAD, BAD, BAD)
    assert agrees(FAILED, GOOD, BAD) is False
    assert agrees(FAILED, GOOD) is False


def test_a_mixed_row_is_contradicted_by_nothing() -> None:
    assert agrees(MIXED, GOOD, BAD)
    assert agrees(MIXED, GOOD, GOOD) is None
    assert agrees(MIXED, BAD) is None


def test_the_second_failure_mode_learns_at_first() -> None:
    assert agrees(SECOND, GOOD, LOST)
    assert agrees(SECOND, GOOD, BAD) is False


def test_the_protocol_of_the_paper_is_held_to_its_figures() -> None:
    assert agrees(TRAINED, GOOD, exact=True)
    assert agrees(TRAINED, Seed(0.88, 0.85, 0.9, 0.4)) is True
    low = judge(TRAINED, "dnn", [Seed(0.88, 0.85, 0.9, 0.4)], PAPER)
    assert low.agrees is False
    assert "accuracy is off by 0.060" in low.reason
    dense = judge(TRAINED, "dnn", [Seed(0.94, 0.80, 0.94, 0.3)], PAPER)
    assert dense.agrees is False
    assert "sparsity is off by 0.050" in dense.reason


def test_a_first_epoch_is_judged_by_whether_it_came_apart() -> None:
    probe = preset("probe", "deep")
    apart, nan = Seed(0.11, 0.7, 0.11, 2.301), Seed(0.1, 0.0, 0.1, math.nan)
    for held in (Seed(0.18, 0.85, 0.18, 2.24), Seed(0.1, 0.84, 0.1, 2.38), Seed(0.4, 0.7, 0.4, 1.7)):
        assert judge(TRAINED, "dnn", [held], probe).agrees
        assert judge(SECOND, "dnn", [held], probe).agrees
        assert judge(FAILED, "dnn", [held], probe).reason == "1 of 1 held, the paper: failed"
    for seed in (apart, nan):
        assert judge(TRAINED, "dnn", [seed], probe).agrees is False
        assert judge(FAILED, "dnn", [seed], probe).agrees


@pytest.mark.parametrize(("accuracy", "expected"), [(0.6, True), (0.1, False)])
def test_a_cnn_row_is_a_single_run(accuracy: float, expected: bool) -> None:
    # CReLU 0.85 with V′ = 0.9 fails as a DNN and trains as a CNN (0.66); CST is the other way round (0.29).
    assert agrees(FAILED, Seed(accuracy, 0.8, accuracy, 1.0), part="cnn") is expected
    assert agrees(TABLE["cst", 0.85, 0.9], Seed(accuracy, 0.8, accuracy, 1.0), part="cnn") is not expected
    assert agrees(load_table("table_shallow_clipped")[0], GOOD, part="cnn") is None
