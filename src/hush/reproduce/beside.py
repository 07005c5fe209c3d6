"""What the table commands print: results, or the designs, beside the paper's printed values."""

import math

from hush.reproduce.grid import Cell, Grid
from hush.reproduce.paper import TABLES, load_table
from hush.reproduce.results import Figure, ResultRow, ResultTable
from hush.theory import Design, design, entry_of

__all__ = ["design_grid", "result_grid"]

_TITLES = {
    ("table1", "dnn"): "Table 1, DNN on MNIST",
    ("table1", "cnn"): "Table 1, CNN on CIFAR-10",
    ("table-shallow-unclipped", "dnn"): "30 layers, unclipped, MNIST",
    ("table-shallow-clipped", "dnn"): "30 layers, clipped, MNIST",
}
# The printed values have two digits; V″ is the difference of larger terms that were rounded first.
_ROUNDING = {"threshold": 0.0051, "clip": 0.0051, "v_prime": 0.0051, "v_second": 0.0101}


def result_grid(table: ResultTable, command: str) -> Grid:
    """Ours beside the paper's; green where it agrees, red where it does not, yellow for a figure that is off."""
    paper_only = "" if table.part == "dnn" else " (1 run)"
    columns = ["#", "φ", "s", "τ", "m", "V′", "accuracy", f"paper{paper_only}", "sparsity", "paper", "seeds", "agrees"]
    notes = [
        *table.sentences(),
        *table.origin.sentences(command),
        "Ours are mean ± standard deviation of the sample (number of seeds), on the test set.",
    ]
    return Grid(
        f"{_TITLES[table.name, table.part]}, preset {table.recipe.name}",
        columns,
        [_cells(row, table.part) for row in table.rows],
        notes,
        [_record(row, table) for row in table.rows],
    )


def _cells(row: ResultRow, part: str) -> list[Cell]:
    paper = row.row.paper
    agrees = row.verdict.agrees
    mood = "faint" if not row.seeds else "" if agrees is None else "good" if agrees else "bad"
    mark = {None: "–", True: "✓", False: "✗"}[agrees]
    spread = part == "dnn"
    return [
        Cell(str(row.row.number)),
        Cell(entry_of(paper.activation).label),
        Cell(f"{paper.sparsity:.2f}"),
        Cell(f"{paper.threshold:.2f}"),
        Cell("–" if paper.clip is None else f"{paper.clip:.2f}"),
        Cell(f"{paper.v_prime:.1f}"),
        Cell(row.accuracy.ours(), mood),
        Cell(row.accuracy.paper(spread)),
        Cell(row.sparsity.ours(), _sparsity_mood(row)),
        Cell(row.sparsity.paper(spread)),
        Cell(row.status, "" if row.seeds else "faint"),
        Cell(mark, mood),
    ]


def _sparsity_mood(row: ResultRow) -> str:
    return "faint" if not row.seeds else "good" if row.sparsity.near else "off"


def _record(row: ResultRow, table: ResultTable) -> dict[str, object]:
    paper = row.row.paper

    def pair(name: str, figure: Figure) -> dict[str, object]:
        blank = not figure.count
        return {
            f"{name}_mean": "" if blank else f"{figure.mean:.5f}",
            f"{name}_std": "" if math.isnan(figure.std) else f"{figure.std:.5f}",
            f"paper_{name}_mean": figure.paper_mean,
            f"paper_{name}_std": figure.paper_std if table.part == "dnn" else "",
        }

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
        "seeds": len(row.seeds),
        "seeds_wanted": row.wanted,
        "epochs": " ".join(map(str, row.epochs)),
        "accuracies": " ".join(f"{seed.accuracy:.4f}" for seed in row.seeds),
        "sparsities": " ".join(f"{seed.sparsity:.4f}" for seed in row.seeds),
        "agrees": {None: "", True: "yes", False: "no"}[row.verdict.agrees],
        "reason": row.verdict.reason,
    }


def design_grid(command: str) -> Grid:
    """τ, m, V′ and V″ of every row of the three tables, computed from (activation, s, V′), beside the printed ones."""
    rows, records, off = [], [], 0
    for table in TABLES:
        for number, paper in enumerate(load_table(table), start=1):
            made = design(paper.activation, paper.sparsity, v_prime=None if paper.clip is None else paper.v_prime)
            cells, record, wrong = [], dict[str, object](), 0
            for name in _ROUNDING:
                ours, theirs = _value(made, name), getattr(paper, name)
                bad = ours is not None and theirs is not None and abs(ours - theirs) > _ROUNDING[name]
                wrong += bad
                cells += [_number(ours, 4, "bad" if bad else "good"), _number(theirs, 2)]
                record |= {
                    name: "" if ours is None else f"{ours:.6f}",
                    f"paper_{name}": "" if theirs is None else theirs,
                }
            off += bool(wrong)
            label = table.removeprefix("table_").replace("_", " ")
            rows.append(
                [
                    Cell(label),
                    Cell(str(number)),
                    Cell(entry_of(paper.activation).label),
                    Cell(f"{paper.sparsity:.2f}"),
                    *cells,
                    Cell("✗" if wrong else "✓", "bad" if wrong else "good"),
                ]
            )
            records.append(
                {"table": table, "row": number, "activation": paper.activation, "s": paper.sparsity}
                | record
                | {"agrees": "no" if wrong else "yes"}
            )
    notes = [
        f"{len(rows) - off} of {len(rows)} rows agree with the printed values to their rounding (V″ within 0.01).",
        f"Command: {command}",
    ]
    columns = ["table", "#", "φ", "s", "τ", "paper", "m", "paper", "V′", "paper", "V″", "paper", "agrees"]
    return Grid("Designs, recomputed", columns, rows, notes, records)


def _value(made: Design, name: str) -> float | None:
    return getattr(made, name)


def _number(value: float | None, digits: int, mood: str = "") -> Cell:
    return Cell("–") if value is None else Cell(f"{value + 0.0:.{digits}f}", mood)
