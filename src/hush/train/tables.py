"""The three tables of a run directory, as CSV."""

import csv
import io
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hush._files import replace_text

__all__ = ["COLUMNS", "FIRST_STEPS", "Table", "by_layer", "read_table", "write_table"]

Table = dict[str, NDArray[np.float64]]

FIRST_STEPS = 15  # of which every layer is recorded: those of the paper's figure of exploding gradients
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


def by_layer(layers: Table, column: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(recorded steps, a column of the table `layers` as steps × layers); NaN where a layer is missing."""
    steps, rows = np.unique(layers["step"], return_inverse=True)
    columns = layers["layer"].astype(np.intp) - 1
    values = np.full((steps.size, int(columns.max(initial=-1)) + 1), np.nan)
    values[rows, columns] = layers[column]
    return steps, values
