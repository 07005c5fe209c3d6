"""The three tables of a run directory, as CSV."""

import csv
import io
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hush._files import replace_text

__all__ = ["COLUMNS", "Table", "read_table", "write_table"]

Table = dict[str, NDArray[np.float64]]

COLUMNS = {
    "metrics": (
        "epoch",
        "step",
        "train_loss",
        "validation_loss",
        "validation_accuracy",
        "sparsity",
        "learning_rate",
        "seconds",
    ),
    "losses": ("step", "loss"),
    # gradient_norm is |∂L/∂h| over the batch, weight_gradient_norm |∂L/∂W|
    "layers": ("step", "layer", "q", "sparsity", "saturated", "dead", "gradient_norm", "weight_gradient_norm"),
}


def write_table(directory: Path, name: str, rows: list[list[float]]) -> None:
    """One of COLUMNS, by one rename; what is not a number is left empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS[name])
    writer.writerows(["" if isinstance(v, float) and math.isnan(v) else v for v in row] for row in rows)
    replace_text(directory / f"{name}.csv", text.getvalue())


def read_table(directory: Path, name: str) -> Table:
    """Column by column; without rows where the file is not there yet.

    Raises:
        ValueError: if the file is damaged.
    """
    file, columns = directory / f"{name}.csv", COLUMNS[name]
    rows: list[dict[str, str]] = []
    if file.is_file():
        with file.open(encoding="utf-8", newline="") as text:
            reader = csv.DictReader(text)
            if tuple(reader.fieldnames or ()) != columns:
                raise ValueError(f"its columns are {reader.fieldnames}, not {', '.join(columns)}")
            rows = list(reader)
    return {c: np.array([float(row[c]) if row[c] else math.nan for row in rows]) for c in columns}
