"""τ, m, V′ and V″ of every row of the paper's tables, computed anew, beside the printed values."""

from dataclasses import dataclass

from hush.reproduce.paper import TABLES, PaperRow, load_table
from hush.reproduce.printed_table import Cell, Mood, PrintedTable
from hush.theory import Design, design, entry_of

__all__ = ["compare_designs"]

_COLUMNS = ["table", "#", "φ", "s", "τ", "paper", "m", "paper", "V′", "paper", "V″", "paper", "same"]


@dataclass(frozen=True)
class _Compared:
    """One value of a design and the paper's, either of which there may not be."""

    name: str
    ours: float | None
    paper: float | None
    rounding: float

    @property
    def off(self) -> bool:
        return self.ours is not None and self.paper is not None and abs(self.ours - self.paper) > self.rounding

    def cells(self) -> list[Cell]:
        return [_number(self.ours, 4, Mood.BAD if self.off else Mood.GOOD), _number(self.paper, 2)]

    def record(self) -> dict[str, object]:
        ours = "" if self.ours is None else f"{self.ours:.6f}"
        return {self.name: ours, f"paper_{self.name}": "" if self.paper is None else self.paper}


def _compare(made: Design, paper: PaperRow) -> list[_Compared]:
    # The printed values have two digits; V″ is the difference of larger terms that were rounded first.
    return [
        _Compared("threshold", made.threshold, paper.threshold, 0.0051),
        _Compared("clip", made.clip, paper.clip, 0.0051),
        _Compared("v_prime", made.v_prime, paper.v_prime, 0.0051),
        _Compared("v_second", made.v_second, paper.v_second, 0.0101),
    ]


def compare_designs(command: str) -> PrintedTable:
    """Every row of the three tables, designed anew from (activation, s, V′)."""
    rows: list[list[Cell]] = []
    records: list[dict[str, object]] = []
    off = 0
    for table in TABLES:
        for number, paper in enumerate(load_table(table), start=1):
            made = design(paper.activation, paper.sparsity, v_prime=None if paper.clip is None else paper.v_prime)
            compared = _compare(made, paper)
            wrong = any(value.off for value in compared)
            off += wrong
            rows.append(
                [
                    Cell(table.removeprefix("table_").replace("_", " ")),
                    Cell(str(number)),
                    Cell(entry_of(paper.activation).label),
                    Cell(f"{paper.sparsity:.2f}"),
                    *(cell for value in compared for cell in value.cells()),
                    Cell("✗", Mood.BAD) if wrong else Cell("✓", Mood.GOOD),
                ]
            )
            record: dict[str, object] = {"table": table, "row": number}
            record |= {"activation": paper.activation, "s": paper.sparsity}
            for value in compared:
                record |= value.record()
            records.append(record | {"agrees": "no" if wrong else "yes"})
    notes = [
        f"{len(rows) - off} of {len(rows)} rows agree with the printed values to their rounding (V″ within 0.01).",
        f"Command: {command}",
    ]
    return PrintedTable("Designs, recomputed", _COLUMNS, rows, notes, records)


def _number(value: float | None, digits: int, mood: Mood = Mood.PLAIN) -> Cell:
    return Cell("–") if value is None else Cell(f"{value + 0.0:.{digits}f}", mood)
