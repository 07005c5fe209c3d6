"""The three tables of a run directory, as typed rows and as CSV."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hush._files import replace_text

__all__ = [
    "COLUMNS",
    "FIRST_STEPS",
    "EpochRow",
    "LayerRow",
    "LossRow",
    "Table",
    "by_layer",
    "is_watched",
    "read_table",
    "write_table",
]

Table = dict[str, NDArray[np.float64]]

FIRST_STEPS = 15  # of which every layer is recorded: those of the paper's figure of exploding gradients


def is_watched(step: int, every: int) -> bool:
    """Whether the layers are recorded at this step: at the first ones, and at every so many."""
    return step < FIRST_STEPS or step % every == 0


class EpochRow(NamedTuple):
    """A row of metrics.csv: an epoch, with the mean training loss over it and the scores of the held-out images."""

    epoch: int
    step: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float
    sparsity: float
    learning_rate: float
    seconds: float


class LossRow(NamedTuple):
    """A row of losses.csv: the training loss of a step."""

    step: int
    loss: float


class LayerRow(NamedTuple):
    """A row of layers.csv. gradient_norm is |∂L/∂h| over the batch, weight_gradient_norm |∂L/∂W|."""

    step: int
    layer: int
    q: float
    sparsity: float
    saturated: float
    dead: float
    gradient_norm: float
    weight_gradient_norm: float


COLUMNS: dict[str, tuple[str, ...]] = {
    "metrics": EpochRow._fields,
    "losses": LossRow._fields,
    "layers": LayerRow._fields,
}


def write_table(directory: Path, name: str, rows: Sequence[Sequence[float]]) -> None:
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
