"""Rows of a benchmark as CSV, numbers to four places."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["text_of", "write_csv"]


def text_of(value: Any) -> str:
    """A number to four places, nothing for NaN, and everything else as it is."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4f}"
    return str(value)


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Into `path` with the suffix .csv; its folder is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows([{key: text_of(value) for key, value in row.items()} for row in rows])
