"""The paper's printed tables, row by row."""

import csv
from dataclasses import dataclass, fields
from enum import Enum
from importlib import resources

__all__ = ["TABLES", "Outcome", "PaperRow", "load_table"]

TABLES = ("table1", "table_shallow_unclipped", "table_shallow_clipped")


class Outcome(Enum):
    """What the paper's five runs of a row came to."""

    TRAINED = "trained"
    FAILED = "failed"
    MIXED = "mixed"
    SECOND_FAILURE_MODE = "second failure mode"


@dataclass(frozen=True)
class PaperRow:
    """One row: the design as printed (to two digits), and what the paper measured."""

    depth: int
    width: int
    activation: str
    sparsity: float
    threshold: float
    clip: float | None
    v_prime: float
    v_second: float | None
    accuracy_mean: float
    accuracy_std: float
    sparsity_mean: float
    sparsity_std: float
    cnn_accuracy: float | None = None
    cnn_sparsity: float | None = None

    @property
    def name(self) -> str:
        """Such as "shifted_relu-0.6" or "crelu-0.85-0.7": activation, sparsity and, with a clip, V′."""
        return f"{self.activation}-{self.sparsity:g}" + ("" if self.clip is None else f"-{self.v_prime:g}")

    @property
    def outcome(self) -> Outcome:
        """Trained at a mean accuracy of 0.85 or more, failed below 0.5, mixed between.

        High sparsity with a low clip (s ≥ 0.85 and V′ = 0.5) is the paper's second failure mode: training that starts
        well and comes apart later, which is no matter of the initialisation.
        """
        if self.clip is not None and self.sparsity >= 0.85 and self.v_prime == 0.5:
            return Outcome.SECOND_FAILURE_MODE
        if self.accuracy_mean >= 0.85:
            return Outcome.TRAINED
        return Outcome.FAILED if self.accuracy_mean < 0.5 else Outcome.MIXED


def load_table(name: str) -> list[PaperRow]:
    """The rows of one of TABLES, in the paper's order."""
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}; there are {', '.join(TABLES)}.")
    text = resources.files("hush.reproduce").joinpath("tables", f"{name}.csv").read_text(encoding="utf-8")
    kinds = {field.name: field.type for field in fields(PaperRow)}
    rows = []
    for record in csv.DictReader(text.splitlines()):
        values: dict[str, object] = {}
        for key, value in record.items():
            kind = kinds[key]
            values[key] = value if kind is str else int(value) if kind is int else float(value) if value else None
        rows.append(PaperRow(**values))  # type: ignore[arg-type]
    return rows
