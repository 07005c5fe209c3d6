"""Speedup of the sparse engine against sparsity, with the 1/(1 − s) line."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hush._style import BLACK, panels, shades, stamp, styled
from hush.reproduce.figures.committed_results import committed, remarks_of

__all__ = ["draw_from_source", "draw_speedup", "measure", "read_rows"]

_COLUMNS = ("work", "peer", "width", "batch", "sparsity", "ratio_to_best_peer")
_SPARSITIES = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95)

Row = Mapping[str, object]


def draw_from_source(source: str | Path | None = None, measured: bool = False) -> Figure:
    """From the measurements of `hush bench` in a CSV file; by default the committed ones, or measured now.

    Raises:
        ValueError: if there are no rows to draw.
    """
    if measured:
        if source is not None:
            raise ValueError(f"the speedup is either read from {source} or measured, not both.")
        return draw_speedup(measure())
    if source is not None:
        return _draw_file(Path(source))
    for path in committed("*.csv"):
        with path.open(encoding="utf-8") as lines:
            head = next((line for line in lines if not line.startswith("#")), "")
        if set(_COLUMNS) <= set(head.strip().split(",")):
            return _draw_file(path)
    raise ValueError(
        "there is no measured speedup in docs/results; give a CSV file of bench rows, or have it measured."
    )


def _draw_file(path: Path) -> Figure:
    figure = draw_speedup(read_rows(path))
    said = sorted({_without_limits(remark) for remark in remarks_of(path)})
    stamp(figure, "; ".join(said) or f"{path.name} does not say when and where it was measured.")
    return figure


def _without_limits(remark: str) -> str:
    """Command, day, versions and machine; its measured limits differ from one stretch of the sweep to the next."""
    return ", ".join(part for part in remark.split(", ") if not part.endswith(("GFLOP/s", "GB/s")))


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file that `benchmarks/widths.py` wrote; lines that start with # are remarks.

    Raises:
        ValueError: if it is no such file.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path} with measured speedups.")
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(line for line in lines if not line.startswith("#"))
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path} has no column {missing[0]!r}; bench rows have {', '.join(_COLUMNS)}.")
        return list(reader)


def measure(width: int = 1024, batch: int = 128, repeats: int = 5) -> list[Row]:
    """One layer's SGD step over sparsities: some seconds of work."""
    from hush import bench

    rows: list[Row] = []
    for sparsity in _SPARSITIES:
        more, _ = bench.layer(width=width, batch=batch, sparsity=sparsity, repeats=repeats)
        rows += [row.to_dict() for row in more]
    return rows


@styled
def draw_speedup(rows: Sequence[Row]) -> Figure:
    """A panel for each kind of work and batch, a line for each width; dashed what counting zeros would promise.

    Raises:
        ValueError: if there is no row of hush with a ratio among them.
    """
    from hush.bench.measurement import OURS

    lines: dict[tuple[str, int], dict[int, dict[float, float]]] = {}
    for row in rows:
        if row["peer"] not in OURS or row["ratio_to_best_peer"] in (None, "", "None"):
            continue
        place = lines.setdefault((str(row["work"]), int(str(row["batch"]))), {}).setdefault(int(str(row["width"])), {})
        ratio = float(str(row["ratio_to_best_peer"]))
        s = float(str(row["sparsity"]))
        place[s] = max(ratio, place.get(s, 0.0))
    # A single sparsity makes no line.
    lines = {key: widths for key, widths in lines.items() if any(len(points) > 1 for points in widths.values())}
    if not lines:
        raise ValueError("there is no speedup over several sparsities among the rows.")
    widths = sorted({width for own in lines.values() for width in own})
    colours = dict(zip(widths, shades(len(widths)), strict=True))
    columns = min(3, len(lines))
    count = -(-len(lines) // columns)
    figure, axes = panels(
        count, columns, 0.6 + 2.4 * count, width=max(3.6, 7.0 * columns / 3), sharex=True, sharey=True
    )
    for panel, ((work, batch), own) in zip(axes, sorted(lines.items()), strict=False):
        reach = np.linspace(0.5, 0.95, 91)
        panel.plot(reach, 1.0 / (1.0 - reach), color=BLACK, ls="--", lw=0.9, label=r"$1/(1-s)$")
        panel.axhline(1.0, color=BLACK, lw=0.6)
        for width, points in sorted(own.items()):
            s, ratio = np.array(sorted(points.items())).T
            panel.plot(s, ratio, marker="o", ms=3.5, color=colours[width], label=f"width {width}")
        panel.set_yscale("log", base=2)
        panel.set_yticks([0.5, 1, 2, 4, 8, 16], ["½", "1", "2", "4", "8", "16"])
        panel.set_title(f"{work}, batch {batch}")
    for panel in axes[len(lines) :]:
        panel.remove()
    for i, panel in enumerate(axes[: len(lines)]):
        if i % columns == 0:
            panel.set_ylabel("times as fast as\nthe fastest dense peer")
        if i + columns >= len(lines):
            panel.set_xlabel(r"sparsity $s$")
            panel.tick_params(labelbottom=True)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 * columns)
    return figure
