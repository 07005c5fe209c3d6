"""Our results beside the paper's printed values, as a table to print."""

import math

from hush.reproduce.agreement import expected_outcome
from hush.reproduce.paper import PaperRow
from hush.reproduce.printed_table import Cell, Mood, PrintedTable
from hush.reproduce.results import MeanOfRuns, ResultRow, ResultTable
from hush.theory import entry_of

__all__ = ["compare_results"]

_TITLES = {
    ("table1", "dnn"): "Table 1, DNN on MNIST",
    ("table1", "cnn"): "Table 1, CNN on CIFAR-10",
    ("table-shallow-unclipped", "dnn"): "30 layers, unclipped, MNIST",
    ("table-shallow-clipped", "dnn"): "30 layers, clipped, MNIST",
}


def compare_results(table: ResultTable, command: str) -> PrintedTable:
    """Ours beside the paper's: the accuracies with their gap, then who trains and who fails.

    A ✓ stands where ours trains as the paper's does, or fails as it does, and nowhere else.
    """
    paper = "paper" if table.part == "dnn" else "paper (1 run)"
    columns = ["#", "φ", "s", "τ", "m", "V′", "accuracy", paper, "gap", "sparsity", "paper", "seeds", "ours", "paper's"]
    if table.drawn is not None:
        columns.insert(-2, "as drawn")
    if not table.recipe.cut_short:
        columns.append("same")
    notes = [
        *table.sentences(),
        *table.origin.sentences(command),
        "Ours are mean ± standard deviation of the sample (number of runs), on the test set.",
        "Gap: our accuracy less the paper's.",
    ]
    return PrintedTable(
        f"{_TITLES[table.name, table.part]}, preset {table.recipe.name}",
        columns,
        [_cells(row, table) for row in table.rows],
        notes,
        [_record(row, table) for row in table.rows],
    )


def _cells_of_design(paper: PaperRow) -> list[Cell]:
    """φ, s, τ, m and V′ as the paper prints them."""
    return [
        Cell(entry_of(paper.activation).label),
        Cell(f"{paper.sparsity:.2f}"),
        Cell(f"{paper.threshold:.2f}"),
        Cell("–" if paper.clip is None else f"{paper.clip:.2f}"),
        Cell(f"{paper.v_prime:.1f}"),
    ]


def _cells(row: ResultRow, table: ResultTable) -> list[Cell]:
    agrees, spread = row.verdict.agrees, table.part == "dnn"
    mood = Mood.FAINT if not row.runs else {None: Mood.PLAIN, True: Mood.GOOD, False: Mood.BAD}[agrees]
    paper = expected_outcome(row.row.paper, table.part)
    cells = [
        Cell(str(row.row.number)),
        *_cells_of_design(row.row.paper),
        Cell(row.accuracy.ours(), Mood.FAINT if not row.runs else Mood.BAD if agrees is False else Mood.PLAIN),
        Cell(row.accuracy.paper(spread)),
        Cell(row.accuracy.gap(), Mood.FAINT if not row.runs else Mood.PLAIN if row.accuracy.near else Mood.OFF),
        Cell(row.sparsity.ours(), Mood.FAINT if not row.runs else Mood.PLAIN if row.sparsity.near else Mood.OFF),
        Cell(row.sparsity.paper(spread)),
        Cell(row.status, Mood.PLAIN if row.runs else Mood.FAINT),
        *_cell_as_drawn(row, table),
        Cell(row.verdict.outcome if row.runs else "–", mood),
        Cell("–" if paper is None else paper.value),
    ]
    if not table.recipe.cut_short:
        cells.append(Cell({None: "–", True: "✓", False: "✗"}[agrees], mood))
    return cells


def _drawn(row: ResultRow, table: ResultTable) -> ResultRow | None:
    """The same row as the paper draws it, where it was run."""
    found = None if table.drawn is None else table.drawn.rows[row.row.number - 1]
    return found if found is not None and found.runs else None


def _cell_as_drawn(row: ResultRow, table: ResultTable) -> list[Cell]:
    if table.drawn is None:
        return []
    found = _drawn(row, table)
    if found is None:
        return [Cell("–", Mood.FAINT)]
    return [Cell(found.verdict.outcome, Mood.BAD if found.verdict.agrees is False else Mood.PLAIN)]


def _record(row: ResultRow, table: ResultTable) -> dict[str, object]:
    paper = row.row.paper
    drawn = _drawn(row, table)

    def pair(name: str, value: MeanOfRuns) -> dict[str, object]:
        return {
            f"{name}_mean": f"{value.mean:.5f}" if value.count else "",
            f"{name}_std": "" if math.isnan(value.std) else f"{value.std:.5f}",
            f"paper_{name}_mean": value.paper_mean,
            f"paper_{name}_std": value.paper_std if table.part == "dnn" else "",
        }

    expected = expected_outcome(paper, table.part)
    return {
        "table": table.name,
        "part": table.part,
        "preset": table.recipe.name,
        "row": row.row.number,
        "activation": paper.activation,
        "s": paper.sparsity,
        "threshold": paper.threshold,
        "clip": "" if paper.clip is None else paper.clip,
        "v_prime": paper.v_prime,
        **pair("accuracy", row.accuracy),
        **pair("sparsity", row.sparsity),
        "seeds": len(row.runs),
        "seeds_wanted": row.wanted,
        "epochs": " ".join(map(str, row.epochs)),
        "accuracies": " ".join(f"{run.accuracy:.4f}" for run in row.runs),
        "sparsities": " ".join(f"{run.sparsity:.4f}" for run in row.runs),
        "outcome": row.verdict.outcome if row.runs else "",
        "paper_outcome": "" if expected is None else expected.value,
        "agrees": {None: "", True: "yes", False: "no"}[row.verdict.agrees],
        "reason": row.verdict.reason,
        **({} if table.drawn is None else {"as_drawn": "" if drawn is None else drawn.verdict.outcome}),
        "days": " ".join(sorted({origin.day for origin in row.origins})),
        "machines": "; ".join(sorted({origin.machine for origin in row.origins})),
    }
