"""Tables read from run directories, and the four ways to print them."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

from hush.reproduce.comparison_table import compare_results
from hush.reproduce.design_table import compare_designs
from hush.reproduce.experiments import Experiment, experiment
from hush.reproduce.printed_table import Cell, PrintedTable, render
from hush.reproduce.results import read_results
from hush.reproduce.train_and_read import reproduce_table
from tests.reproduce.runs import write_run

ACCURACIES = (0.91, 0.93, 0.95)


@pytest.fixture
def made(tmp_path: Path) -> Experiment:
    """Row 8 trained three times, row 9 failed once of three, row 7 begun, the others not."""
    made = experiment("table-shallow-clipped", "quick", rows="1,7-9", seeds=3, given={"lr": 0.02})
    for config, accuracy in zip(made.rows[7].configs, ACCURACIES, strict=True):
        write_run(tmp_path, config, accuracy, 0.848)
    write_run(tmp_path, made.rows[8].configs[1], 0.1, 0.3)
    begun = write_run(tmp_path, made.rows[6].configs[0], 0.5, 0.85)
    (begun / "result.json").unlink()
    return made


def test_means_counts_and_verdicts(made: Experiment, tmp_path: Path) -> None:
    table = read_results(made, tmp_path)
    eighth, ninth, seventh, first = (table.rows[i] for i in (7, 8, 6, 0))
    assert eighth.accuracy.mean == pytest.approx(np.mean(ACCURACIES))
    assert eighth.accuracy.std == pytest.approx(np.std(ACCURACIES, ddof=1))
    assert eighth.accuracy.ours() == "0.930 ± 0.020 (3)"
    assert (eighth.accuracy.paper(), eighth.sparsity.paper()) == ("0.91 ± 0.01", "0.84 ± 0.01")
    assert eighth.verdict.agrees
    assert ninth.accuracy.ours() == "0.100 (1)"
    assert ninth.verdict.agrees is False
    assert [row.status for row in (eighth, ninth, seventh, first)] == [
        "3 of 3 seeds",
        "1 of 3 seeds",
        "not run yet, 1 begun",
        "not run yet",
    ]
    assert table.agreeing == (1, 2)
    said = table.sentences()
    assert said[0] == "2 of the paper's 24 rows were run, 4 runs in all."
    assert said[1] == "1 of 2 rows with a verdict train or fail as the paper's do (✓)."
    assert said[2] == "Of 2 rows that train in the paper 1 come within 0.03 of its accuracy, or above."
    assert said[3] == "Row 9 (crelu-0.85-0.9) disagrees: mean accuracy 0.100, 1 of 1 failed, the paper: trained."
    assert "- Learning rate 0.02 instead of 0.0001." in said
    assert table.origin.seconds == pytest.approx(12.0)


def test_who_left_chance_gets_no_tick_and_the_gap_is_shown(tmp_path: Path) -> None:
    made = experiment("table1", "quick", part="dnn", rows="17,18")
    write_run(tmp_path, made.rows[16].configs[0], 0.51, 0.848)
    write_run(tmp_path, made.rows[17].configs[0], 0.147, 0.822)
    table = read_results(made, tmp_path)
    assert table.agreeing == (1, 1)
    assert "Row 17: no verdict; ours left chance and did not come as far as the paper's." in table.sentences()
    assert "Of 1 rows that train in the paper 0 come within 0.03 of its accuracy, or above." in table.sentences()
    lines = render([compare_results(table, "x")], "markdown").splitlines()
    left, failed = (next(line for line in lines if line.startswith(f"| {n} |")) for n in (17, 18))
    assert "| 0.510 (1) | 0.94 ± 0.004 | −0.43 |" in left
    assert left.endswith("| left chance | trained | – |")
    assert failed.endswith("| failed | failed | ✓ |")


def test_who_trains_without_its_zeros_is_named(tmp_path: Path) -> None:
    made = experiment("table1", "quick", part="dnn", rows="4,17")
    write_run(tmp_path, made.rows[3].configs[0], 0.97, 0.308)
    write_run(tmp_path, made.rows[16].configs[0], 0.95, 0.853)
    said = read_results(made, tmp_path).sentences()
    assert "Row 4: trained, but zeros are more than 0.03 from s." in said
    assert not any("17: trained, but" in sentence for sentence in said)


def test_a_table_of_runs_cut_short_has_no_ticks(tmp_path: Path) -> None:
    made = experiment("table1", "probe", part="dnn", rows="17,18")
    write_run(tmp_path, made.rows[16].configs[0], 0.175, 0.85)
    write_run(tmp_path, made.rows[17].configs[0], 0.096, 0.7)
    table = read_results(made, tmp_path)
    text = render([compare_results(table, "x")], "markdown")
    assert "✓" not in text
    assert "| held | trained |" in text
    assert "say nothing of accuracies" in text


def test_a_damaged_run_is_named(made: Experiment, tmp_path: Path) -> None:
    file = tmp_path / made.rows[7].configs[0].name / "result.json"
    file.write_text("{")
    with pytest.raises(ValueError, match=f"{re.escape(str(file))} is damaged"):
        read_results(made, tmp_path)


def test_formats_hold_the_same_figures(made: Experiment, tmp_path: Path) -> None:
    printed = compare_results(read_results(made, tmp_path), "hush reproduce x")
    records = list(csv.DictReader(io.StringIO(render([printed], "csv"))))
    assert len(records) == 24
    assert float(records[7]["accuracy_mean"]) == pytest.approx(np.mean(ACCURACIES), abs=1e-5)
    assert [float(a) for a in records[7]["accuracies"].split()] == list(ACCURACIES)
    assert (records[7]["agrees"], records[8]["agrees"], records[0]["agrees"]) == ("yes", "no", "")
    markdown = render([printed], "markdown")
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) == 24 + 2
    assert len({line.count("|") for line in lines}) == 1
    assert "| 0.930 ± 0.020 (3) | 0.91 ± 0.01 | +0.02 |" in lines[9]
    assert "**✗**" in lines[10]
    latex = render([printed], "latex")
    assert r"0.930 $\pm$ 0.020 (3) & 0.91 $\pm$ 0.01" in latex
    assert all(
        latex.count(rf"\begin{{{name}}}") == latex.count(rf"\end{{{name}}}") == 1 for name in ("table", "tabular")
    )
    assert latex.isascii()
    for text in (markdown, latex, render([printed], "rich", width=200)):
        assert "hush reproduce x" in text
        assert "torch 2.13.0" in text
    assert "\x1b[32mtrained" in render([printed], "rich", colour=True, width=200)
    with pytest.raises(ValueError, match="unknown format 'html'; there are rich, markdown, csv, latex"):
        render([printed], "html")


def test_what_latex_and_markdown_need_escaped() -> None:
    printed = PrintedTable("50 % & more", ["a|b"], [[Cell("x_1")]], ["{#}"], [{"a": "1,2"}])
    latex = render([printed], "latex")
    assert r"50 \% \& more" in latex
    assert r"x\_1" in latex
    assert r"\{\#\}" in latex
    assert r"| a\|b |" in render([printed], "markdown")
    assert list(csv.DictReader(io.StringIO(render([printed], "csv")))) == [{"a": "1,2"}]


def test_the_smoke_preset_judges_nothing(tmp_path: Path) -> None:
    made = experiment("table-shallow-clipped", "smoke")
    for config in made.configs:
        write_run(tmp_path, config, 0.1, 0.1)
    table = read_results(made, tmp_path)
    assert table.agreeing == (0, 0)
    assert "says nothing of the paper" in table.sentences()[0]


def test_the_designs_agree_with_the_printed_values() -> None:
    printed = compare_designs("hush reproduce design-table")
    assert len(printed.rows) == 65
    assert printed.notes[0].startswith("65 of 65 rows agree")
    row = printed.records[16]  # CReLU, 0.85, 0.7
    assert (row["paper_threshold"], row["paper_clip"], row["paper_v_second"]) == (1.04, 1.17, 0.02)
    assert float(str(row["clip"])) == pytest.approx(1.17, abs=0.005)


def test_what_became_of_rows_as_the_paper_draws_them_stands_beside(tmp_path: Path) -> None:
    whole = experiment("table1", "quick", part="dnn", rows="17,18,33")
    drawn = experiment("table1", "probe", part="dnn", rows="17,18,33", seeds=1)
    for row in (16, 17, 32):
        write_run(tmp_path, whole.rows[row].configs[0], 0.95, whole.rows[row].paper.sparsity)
    write_run(tmp_path, drawn.rows[16].configs[0], 0.12, 0.848)
    write_run(tmp_path, drawn.rows[17].configs[0], 0.1, 0.751, loss=2.4)
    write_run(tmp_path, drawn.rows[32].configs[0], 0.11, 0.849)  # it fails in the paper, and holds here
    (table,), _ = reproduce_table("table1", part="dnn", rows="17,18,33", root=tmp_path, show=True, as_drawn=True)
    said = table.sentences()
    assert (
        "As drawn (preset probe): 2 of 3 rows hold or come apart as the paper's train or fail; runs this short say "
        "nothing of accuracies." in said
    )
    assert "Of 2 rows that fail in the paper 1 come apart as they are drawn." in said
    assert "As drawn, row 33 (cst-0.85-0.9) disagrees: 1 of 1 held, the paper: failed." in said
    assert any(s.startswith("What differs from the paper's protocol there: Epochs: at most 1 instead") for s in said)
    lines = render([compare_results(table, "x")], "markdown").splitlines()
    header, trained, failed, odd = (next(x for x in lines if x.startswith(f"| {n} |")) for n in ("#", 17, 18, 33))
    assert header.endswith("| seeds | as drawn | ours | paper's | same |")
    assert trained.endswith("| held | trained | trained | ✓ |")
    assert "| came apart | **trained** | failed |" in failed
    assert "| **held** | **trained** | failed |" in odd
    records = compare_results(table, "x").records
    assert [records[i]["as_drawn"] for i in (0, 16, 17, 32)] == ["", "held", "came apart", "held"]
    assert table.to_dict()["as_drawn"]["agree"] == 2


def test_cnns_as_the_paper_draws_them(tmp_path: Path) -> None:
    whole = experiment("table1", "quick", part="cnn", rows="17,30")
    drawn = experiment("table1", "probe", part="cnn", rows="17,30", seeds=1)
    for row in (16, 29):
        write_run(tmp_path, whole.rows[row].configs[0], 0.5, whole.rows[row].paper.sparsity)
    write_run(tmp_path, drawn.rows[16].configs[0], 0.1, 0.85)
    write_run(tmp_path, drawn.rows[29].configs[0], 0.1, 0.113, loss=2.4)
    (table,), _ = reproduce_table("table1", part="cnn", rows="17,30", root=tmp_path, show=True, as_drawn=True)
    said = table.sentences()
    assert "Of 1 rows that fail in the paper 1 come apart as they are drawn." in said
    assert any("Squares of 8 × 8 pixels are the channels of one position" in s and "Epochs" in s for s in said)


def test_a_table_whose_rows_begin_as_drawn_has_nothing_to_set_beside(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="as_drawn goes with the preset quick, not with probe"):
        reproduce_table("table1", "probe", part="dnn", root=tmp_path, show=True, as_drawn=True)
