"""The sweep over widths: every cell once, tables that say what the rows say."""

import csv
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # scripts see their neighbours, not a package
import widths
import widths_table


def rows(ratios: dict[float, float], peer: str = "hush_fused") -> list[dict[str, str]]:
    """Rows whose times lie on 2 + 30 ρ."""
    return [
        {
            "work": "training",
            "peer": peer,
            "width": "64",
            "depth": "3",
            "batch": "8",
            "sparsity": str(s),
            "median_ms": str(2 + 30 * (1 - s)),
            "ratio_to_best_peer": str(ratio),
            "crossover": "0.35",
        }
        for s, ratio in ratios.items()
    ]


def test_the_grid_has_what_is_claimed_of_it() -> None:
    cells = list(widths.cells())
    assert len(cells) == len(set(cells))
    for work, batch in [("inference", 1), ("inference", 128), *(("training", b) for b in (16, 64, 128, 512))]:
        for width in (256, 512, 1024, 2048, 4096):
            for s in (0.5, 0.7, 0.85, 0.95):
                assert (work, width, batch, s) in cells


def test_the_table_gives_ratios_crossover_and_the_line_of_the_sparse_cells() -> None:
    text = widths_table.markdown(rows({0.5: 1.0, 0.7: 2.0, 0.85: 3.0, 0.95: 4.0}))
    assert text.splitlines()[-1] == "| 64 × 3 | 1.00 | 2.00 | 3.00 | 4.00 | 0.65 | 2.00 + 30.0 ρ (R² 1.00) |"


def test_a_peer_below_the_ratio_is_no_reason_to_measure_again() -> None:
    found = rows({0.5: 0.94, 0.7: 0.96}) + rows({0.9: 0.5}, "torch_eager") + rows({0.8: 0.5}, "hush_nn_dense")
    assert widths_table.cells_below(found, 0.95) == [("training", 64, 8, 0.5)]
    assert widths_table.lowest(found).startswith("0.94 (hush_fused, training, width 64, batch 8, s = 0.5")


def test_a_sweep_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUSH_CROSSOVER", "always")
    monkeypatch.setattr(widths, "GRID", (("training", 2, (0.5, 0.9)),))
    monkeypatch.setattr(widths, "WIDTHS", (16,))
    monkeypatch.setattr("hush.bench.suites.depth_for", lambda width, arch="chain": 2)
    monkeypatch.setattr(widths.bench, "machine", lambda threads: widths.bench.Machine("portable", 100.0, 10.0))
    monkeypatch.setattr(widths, "REPEATS", 1)
    monkeypatch.setattr(widths, "THREADS", 1)
    path = tmp_path / "sweep.csv"

    def run(*options: str) -> list[dict[str, str]]:
        monkeypatch.setattr(sys, "argv", ["widths.py", str(path), *options])
        widths.main()
        assert path.read_text().startswith("# python benchmarks/widths.py, ")
        return list(csv.DictReader(line for line in path.read_text().splitlines() if line[0] != "#"))

    first = run()
    assert {row["sparsity"] for row in first} == {"0.5", "0.9"}
    assert {row["peer"] for row in first} == {"hush", "hush_input_major", "hush_fused", "torch_eager", "hush_nn_dense"}
    assert "Lowest: " in capsys.readouterr().out
    assert run() == first  # nothing was measured again
    assert len(run("--below", "1e9")) == len(first)  # replaced, not added
    assert {row["repeats"] for row in run()} == {"4"}
    assert "2 cells are still to be measured" not in capsys.readouterr().out
