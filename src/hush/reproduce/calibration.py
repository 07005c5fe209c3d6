"""The finite-width rule against every DNN row of the paper's three tables.

The bounds of the rule were chosen on these very rows, so the count is in-sample: it says that one rule fits them all,
not how often it will be right on others.
"""

from dataclasses import dataclass

from hush.reproduce.paper import TABLES, Outcome, PaperRow, load_table
from hush.theory import Design, design

__all__ = ["Judged", "count_right", "judge_tables"]


@dataclass(frozen=True)
class Judged:
    """A row of the paper beside the design hush makes of its (activation, s, V′), at its width and depth."""

    table: str
    row: PaperRow
    design: Design

    @property
    def agrees(self) -> bool | None:
        """Whether the rule called the first failure mode right; None where the paper has no clear outcome."""
        if self.row.outcome in (Outcome.MIXED, Outcome.SECOND_FAILURE_MODE):
            return None
        return self.design.trains == (self.row.outcome is Outcome.TRAINED)


def judge_tables() -> list[Judged]:
    """Every row of the three tables, designed anew and judged."""
    return [
        Judged(
            table,
            row,
            design(
                row.activation,
                row.sparsity,
                v_prime=None if row.clip is None else row.v_prime,
                width=row.width,
                depth=row.depth,
            ),
        )
        for table in TABLES
        for row in load_table(table)
    ]


def count_right(judged: list[Judged]) -> tuple[int, int]:
    """(rows called right, rows with a clear outcome)."""
    clear = [j.agrees for j in judged if j.agrees is not None]
    return sum(clear), len(clear)
