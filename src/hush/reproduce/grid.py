"""A table with coloured cells and notes under it, as rich text, Markdown, CSV or LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["FORMATS", "Cell", "Grid", "render"]

FORMATS = ("rich", "markdown", "csv", "latex")

# mood: what it looks like in a terminal, in LaTeX, and as a mark where there is no colour
_GOOD, _BAD, _OFF = "good", "bad", "off"
_RICH = {"": "", _GOOD: "green", _BAD: "bold red", _OFF: "yellow", "faint": "dim"}
_LATEX = {_GOOD: "green!50!black", _BAD: "red", _OFF: "orange", "faint": "gray"}
_UNICODE = {
    "±": r"$\pm$",
    "τ": r"$\tau$",
    "φ": r"$\varphi$",
    "″": "$''$",
    "′": "$'$",
    "×": r"$\times$",
    "–": "--",
    "≥": r"$\geq$",
    "²": "$^2$",
    "✓": r"\checkmark",
    "✗": r"$\times$",
}


@dataclass(frozen=True)
class Cell:
    """A text and its mood: good, bad, off, faint or none."""

    text: str
    mood: str = ""


@dataclass(frozen=True)
class Grid:
    """A titled table; `records` are the same rows as plain values, for CSV."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str]
    records: Sequence[dict[str, object]]


def render(grids: Sequence[Grid], form: str, *, colour: bool = False, width: int | None = None) -> str:
    """The tables one below the other.

    Raises:
        ValueError: if the format is none of FORMATS.
    """
    if form == "rich":
        return _rich(grids, colour, width)
    if form == "markdown":
        return "\n".join(_markdown(grid) for grid in grids)
    if form == "csv":
        return _csv(grids)
    if form == "latex":
        return "\n".join(_latex(grid) for grid in grids)
    raise ValueError(f"unknown format {form!r}; there are {', '.join(FORMATS)}.")


def _rich(grids: Sequence[Grid], colour: bool, width: int | None) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=colour, no_color=not colour, width=width, highlight=False)
    for grid in grids:
        table = Table(title=grid.title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in grid.columns:
            table.add_column(column, header_style="cyan", no_wrap=True)
        for row in grid.rows:
            table.add_row(*(Text(cell.text, style=_RICH[cell.mood]) for cell in row))
        console.print(table)
        console.print(Text("\n" + "\n".join(grid.notes) + "\n"), soft_wrap=True)
    return text.getvalue()


def _markdown(grid: Grid) -> str:
    lines = [f"## {grid.title}", "", _bar(grid.columns), _bar(["---"] * len(grid.columns))]
    lines += [_bar([f"**{c.text}**" if c.mood == _BAD else c.text for c in row]) for row in grid.rows]
    # A list needs an empty line before it, and a paragraph one after it.
    items = ""
    for note in grid.notes:
        item = note.startswith("- ")
        lines += [note] if item and items else ["", note]
        items = "list" if item else ""
    return "\n".join(lines) + "\n"


def _bar(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _csv(grids: Sequence[Grid]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(name for grid in grids for record in grid.records for name in record))
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for grid in grids:
        writer.writerows(grid.records)
    return text.getvalue()


def _latex(grid: Grid) -> str:
    lines = [
        "% needs \\usepackage{booktabs,xcolor,amssymb}",
        r"\begin{table}",
        r"\centering",
        r"\begin{tabular}{" + "l" * len(grid.columns) + "}",
        r"\toprule",
        " & ".join(map(_escape, grid.columns)) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(map(_latex_cell, row)) + r" \\" for row in grid.rows]
    notes = " ".join(note.removeprefix("- ") for note in grid.notes)
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_escape(f'{grid.title}. {notes}')}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _latex_cell(cell: Cell) -> str:
    text = _escape(cell.text)
    return rf"\textcolor{{{_LATEX[cell.mood]}}}{{{text}}}" if cell.mood in _LATEX else text


def _escape(text: str) -> str:
    for sign in "&%$#_{}":
        text = text.replace(sign, "\\" + sign)
    for sign, tex in _UNICODE.items():
        text = text.replace(sign, tex)
    return text
