"""The paper's printed values, recomputed; and the finite-width rule on every row."""

import pytest

from hush.reproduce import TABLES, Outcome, PaperRow, load_table
from hush.reproduce.calibration import count_right, judge_tables
from hush.theory import design

ROWS = [row for table in TABLES for row in load_table(table)]


def identify(row: PaperRow) -> str:
    return f"{row.depth}-{row.activation}-{row.sparsity}-{row.v_prime}"


def test_all_rows_are_there() -> None:
    assert [len(load_table(table)) for table in TABLES] == [33, 8, 24]


@pytest.mark.parametrize("row", ROWS, ids=identify)
def test_printed_design_values(row: PaperRow) -> None:
    made = design(row.activation, row.sparsity, v_prime=None if row.clip is None else row.v_prime)
    assert made.threshold == pytest.approx(row.threshold, abs=0.0051)
    if row.clip is not None:
        assert made.clip == pytest.approx(row.clip, abs=0.0051)
    if row.v_second is not None:
        assert made.v_second == pytest.approx(row.v_second, abs=0.01)


def test_the_rule_calls_at_least_95_percent_of_the_rows_right() -> None:
    right, clear = count_right(judge_tables())
    assert clear == 57
    assert right / clear >= 0.95


def test_outcomes() -> None:
    outcomes = [row.outcome for row in ROWS]
    assert outcomes.count(Outcome.MIXED) == 2  # ReLU_τ at 0.6 (depth 100) and 0.8 (depth 30)
    assert outcomes.count(Outcome.SECOND_FAILURE_MODE) == 6
    with pytest.raises(ValueError, match="unknown table 'table9'"):
        load_table("table9")
