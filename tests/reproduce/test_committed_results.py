"""The tables in docs/results claim what their own numbers bear out."""

import csv
import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"
TABLES = sorted(path for path in RESULTS.rglob("table*.md"))


def rows_of(path: Path) -> list[dict[str, str]]:
    lines = [line.strip("| ").split(" | ") for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    # Two columns are called "paper"; the first of them is the accuracy.
    columns = lines[0]
    columns[columns.index("sparsity") + 1] = "paper sparsity"
    return [dict(zip(columns, cells, strict=True)) for cells in lines[2:]]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_tick_stands_only_where_ours_trains_or_fails_as_the_papers(path: Path) -> None:
    ticked = [row for row in rows_of(path) if row.get("same") == "✓"]
    for row in ticked:
        ours, accuracy = row["ours"], float(row["accuracy"].split()[0])
        assert ours == row["paper's"]
        assert ours != "trained" or accuracy >= 0.85
        assert ours != "failed" or accuracy < 0.5


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_the_table_and_its_csv_tell_the_same_values_and_the_gap_is_their_difference(path: Path) -> None:
    records = list(csv.DictReader(path.with_suffix(".csv").read_text(encoding="utf-8").splitlines()))
    rows = rows_of(path)
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        if not record["accuracy_mean"]:
            assert row["gap"] == "–"
            continue
        mean, paper = float(record["accuracy_mean"]), float(record["paper_accuracy_mean"])
        assert row["accuracy"].strip("*").startswith(f"{mean:.3f}")
        assert float(row["gap"].replace("−", "-")) == pytest.approx(mean - paper, abs=0.0051)
        assert row["ours"].strip("*") == record["outcome"]


REPRODUCED = [*TABLES, RESULTS / "second_failure_mode.md"]


@pytest.mark.parametrize("path", REPRODUCED, ids=lambda path: str(path.relative_to(RESULTS)))
def test_no_table_claims_a_day_or_machine_that_its_runs_did_not_record(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "Date: " not in text
    assert "the runs recorded neither date nor machine" in text or "Trained on" in text


@pytest.mark.parametrize("path", sorted({*RESULTS.rglob("*.md")} - {*REPRODUCED}), ids=lambda path: path.name)
def test_a_page_of_a_benchmark_names_its_command_day_and_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(r"`python (-m benchmarks\.|benchmarks/)\w+", text)
    assert re.search(r"20\d\d-\d\d-\d\d", text)
    assert re.search(r"\d cores", text)
