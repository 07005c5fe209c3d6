"""python benchmarks/widths.py FILE.csv: the engine beside dense over widths, sparsities and batches.

Every cell is measured in this process, peers in turns, and its rows are added to FILE.csv; cells that stand there are
not measured again, so a long sweep can be taken in stretches (--seconds) until it is whole. --below 0.95 measures
again, with four times the turns, the cells in which the engine is below that ratio: the new figures replace the old.
Before and after each cell the sgemm rate is taken, and the lower of the two stands in its rows: --sgemm 140 begins
none, and measures again whatever was taken, while the machine gives less because something else is running.
What stands in the file is printed as Markdown.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import widths_table as tables

from hush import __version__, bench
from hush._extras import how_to_install
from hush.sparse import crossover

Cell = tuple[str, int, int, float]  # work, width, batch, sparsity

WIDTHS = (256, 512, 1024, 2048, 4096)
ALL = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
SOME = (0.5, 0.7, 0.85, 0.95)
GRID = (
    ("training", 128, ALL),
    ("inference", 1, SOME),
    ("inference", 128, SOME),
    ("training", 16, SOME),
    ("training", 64, SOME),
    ("training", 512, SOME),
)
PEERS = {"inference": ["torch_eager", "hush_nn_dense", "onnxruntime"], "training": ["torch_eager", "hush_nn_dense"]}
THREADS, REPEATS = 2, 11


def cells() -> Iterator[Cell]:
    for work, batch, sparsities in GRID:
        for width in WIDTHS:
            for s in sparsities:
                yield work, width, batch, s


def measure(cell: Cell, repeats: int) -> list[dict[str, str]]:
    work, width, batch, s = cell
    before = bench.machine(THREADS).sgemm_gflops
    rows, absent = getattr(bench, work)(
        width=width, batch=batch, sparsity=s, threads=THREADS, repeats=repeats, peers=PEERS[work]
    )
    if absent:
        raise SystemExit(f"not installed: {', '.join(absent)}; {how_to_install('bench')}")
    limit = crossover.limit(width, batch, work == "training", turns=False)
    sgemm = min(before, bench.machine(THREADS).sgemm_gflops)
    more = {"repeats": repeats, "crossover": round(limit, 3), "sgemm_gflops": round(sgemm)}
    return [{key: str(value) for key, value in {**row.to_dict(), **more}.items()} for row in rows]


def read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The lines that say where the figures come from, and the rows."""
    if not path.exists():
        return [], []
    lines = path.read_text().splitlines()
    return [line for line in lines if line[:1] == "#"], list(csv.DictReader(line for line in lines if line[:1] != "#"))


def write(path: Path, heads: list[str], rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        file.writelines(f"{line}\n" for line in heads)
        # Rows of an older version have fewer columns.
        columns = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def head() -> str:
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"# python benchmarks/widths.py, {day}, hush {__version__}, torch {torch.__version__}, {bench.machine(THREADS)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no cell after so many")
    parser.add_argument("--sgemm", type=float, default=0.0, help="measure again what was taken below this GFLOP/s")
    parser.add_argument("--below", type=float, help="measure again the cells below this ratio")
    given = parser.parse_args()
    stop = time.monotonic() + given.seconds
    heads, rows = read(given.path)
    done = {tables.cell_of(row) for row in rows if float(row["sgemm_gflops"]) >= given.sgemm}
    repeats = REPEATS
    if given.below is None:
        wanted = [cell for cell in cells() if cell not in done]
    else:
        wanted = [cell for cell in tables.cells_below(rows, given.below) if cell in {*cells()}]
        repeats = 4 * REPEATS
    if wanted:
        heads.append(head())
    for cell in wanted:
        while bench.machine(THREADS).sgemm_gflops < given.sgemm and time.monotonic() < stop:
            time.sleep(2.0)
        if time.monotonic() > stop:
            break
        rows = [row for row in rows if tables.cell_of(row) != cell] + measure(cell, repeats)
        rows.sort(key=tables.cell_of)
        write(given.path, heads, rows)
    print(tables.markdown(rows))
    done = {tables.cell_of(row) for row in rows if float(row["sgemm_gflops"]) >= given.sgemm}
    left = len({*cells()} - done)
    print(f"\n{left} cells are still to be measured." if left else f"\nLowest: {tables.lowest(rows)}")


if __name__ == "__main__":
    main()
