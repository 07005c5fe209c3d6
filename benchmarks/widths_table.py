"""The rows of benchmarks/widths.py as tables: ratios, crossovers, and the line of cost against active units."""

from __future__ import annotations

import numpy as np

from hush.bench import OURS

Row = dict[str, str]
_LEFT_OUT = ("hush_bf16_weights",)


def cell_of(row: Row) -> tuple[str, int, int, float]:
    return row["work"], int(row["width"]), int(row["batch"]), float(row["sparsity"])


def ours(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["peer"] in OURS and row["peer"] not in _LEFT_OUT]


def cells_below(rows: list[Row], ratio: float) -> list[tuple[str, int, int, float]]:
    """The cells in which the engine, in any of its forms, is below that ratio to the fastest peer."""
    return list(dict.fromkeys(cell_of(row) for row in ours(rows) if float(row["ratio_to_best_peer"]) < ratio))


def lowest(rows: list[Row]) -> str:
    row = min(ours(rows), key=lambda r: float(r["ratio_to_best_peer"]))
    work, width, batch, s = cell_of(row)
    return f"{float(row['ratio_to_best_peer']):.2f} ({row['peer']}, {work}, width {width}, batch {batch}, s = {s:g})"


def markdown(rows: list[Row]) -> str:
    """A table for each work and batch: the ratios of both forms of the engine over widths and sparsities."""
    parts = []
    for work, batch in dict.fromkeys((row["work"], int(row["batch"])) for row in rows):
        mine = [row for row in rows if (row["work"], int(row["batch"])) == (work, batch)]
        parts.append(_table(work, batch, mine))
    return "\n\n".join(parts)


def _table(work: str, batch: int, rows: list[Row]) -> str:
    forms = list(dict.fromkeys(row["peer"] for row in ours(rows)))
    columns = sorted({float(row["sparsity"]) for row in rows})
    lines = [f"{work}, batch {batch}: ratio to the fastest peer, {' / '.join(forms)}", ""]
    lines.append(
        "| width × depth | " + " | ".join(f"s = {s:g}" for s in columns) + " | sparse from s | ms at active share ρ |"
    )
    lines.append("|---" * (len(columns) + 3) + "|")
    for width in sorted({int(row["width"]) for row in rows}):
        mine = [row for row in rows if int(row["width"]) == width]
        limit = float(mine[-1]["crossover"])
        cells = [_ratios(mine, forms, s) for s in columns]
        label = f"{width} × {mine[0]['depth']}"
        lines.append(f"| {label} | {' | '.join(cells)} | {1 - limit:.2f} | {_line(mine, forms[-1], limit)} |")
    return "\n".join(lines)


def _ratios(rows: list[Row], forms: list[str], sparsity: float) -> str:
    found = {row["peer"]: float(row["ratio_to_best_peer"]) for row in rows if float(row["sparsity"]) == sparsity}
    return " / ".join(f"{found[form]:.2f}" for form in forms) if found else ""


def _line(rows: list[Row], form: str, limit: float) -> str:
    """a + b ρ by least squares over the cells that ran sparse; nothing below three of them."""
    sparse = [row for row in rows if row["peer"] == form and 1 - float(row["sparsity"]) <= limit]
    if len(sparse) < 3:
        return ""
    shares = np.array([1 - float(row["sparsity"]) for row in sparse])
    times = np.array([float(row["median_ms"]) for row in sparse])
    slope, base = np.polyfit(shares, times, 1)
    fitted = float(np.corrcoef(shares, times)[0, 1] ** 2)
    return f"{base:.2f} + {slope:.1f} ρ (R² {fitted:.2f})"
