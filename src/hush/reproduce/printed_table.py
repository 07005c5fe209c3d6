"""A table as it is printed, with coloured cells and notes under it: rich text, Markdown, CSV or LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["FORMATS", "Cell", "Mood", "PrintedTable", "render"]

FORMATS = ("rich", "markdown", "csv", "latex")


class Mood(Enum):
    """How a cell looks; Markdown has no colours and prints what is BAD in bold."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    OFF = "off"
    FAINT = "faint"


_RICH = {Mood.PLAIN: "", Mood.GOOD: "green", Mood.BAD: "bold red", Mood.OFF: "yellow", Mood.FAINT: "dim"}
_LATEX = {Mood.GOOD: "green!50!black", Mood.BAD: "red", Mood.OFF: "orange", Mood.FAINT: "gray"}
_UNICODE = {
    "±": r"$\pm$",
    "τ": r"$\tau$",
    "φ": r"$\varphi$",
    "″": "$''$",
    "′": "$'$",
    "×": r"$\times$",
    "–": "--",
    "−": "$-$",
    "≥": r"$\geq$",
    "²": "$^2$",
    "✓": r"\checkmark",
    "✗": r"$\times$",
}


@dataclass(frozen=True)
class Cell:
    """A text and how it looks."""

    text: str
    mood: Mood = Mood.PLAIN


@dataclass(frozen=True)
class PrintedTable:
    """A titled table.

    Attributes:
        notes: sentences under it; those that begin with "- " are items of a list.
        records: its rows as plain values, for CSV.
        remarks: lines that begin the CSV file, behind a #.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str]
    records: Sequence[dict[str, object]]
    remarks: Sequence[str] = ()


def render(tables: Sequence[PrintedTable], form: str, *, colour: bool = False, width: int | None = None) -> str:
    """The tables one below the other.

    Raises:
        ValueError: if the format is none of FORMATS.
    """
    if form == "rich":
        return _rich(tables, colour, width)
    if form == "markdown":
        return "\n".join(_markdown(table) for table in tables)
    if form == "csv":
        return _csv(tables)
    if form == "latex":
        return "\n".join(_latex(table) for table in tables)
    raise ValueError(f"unknown format {form!r}; there are {', '.join(FORMATS)}.")


def _rich(tables: Sequence[PrintedTable], colour: bool, width: int | None) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=colour, no_color=not colour, width=width, highlight=False)
    for table in tables:
        drawn = Table(title=table.title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in table.columns:
            drawn.add_column(column, header_style="cyan", no_wrap=True)
        for row in table.rows:
            drawn.add_row(*(Text(cell.text, style=_RICH[cell.mood]) for cell in row))
        console.print(drawn)
        console.print(Text("\n" + "\n".join(table.notes) + "\n"), soft_wrap=True)
    return text.getvalue()


def _markdown(table: PrintedTable) -> str:
    lines = [f"## {table.title}", "", _bar(table.columns), _bar(["---"] * len(table.columns))]
    lines += [_bar([f"**{c.text}**" if c.mood is Mood.BAD else c.text for c in row]) for row in table.rows]
    # A list needs an empty line before it, and a paragraph one after it.
    items = ""
    for note in table.notes:
        item = note.startswith("- ")
        lines += [note] if item and items else ["", note]
        items = "list" if item else ""
    return "\n".join(lines) + "\n"


def _bar(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _csv(tables: Sequence[PrintedTable]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(name for table in tables for record in table.records for name in record))
    text.writelines(f"# {remark}\n" for table in tables for remark in table.remarks)
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for table in tables:
        writer.writerows(table.records)
    return text.getvalue()


def _latex(table: PrintedTable) -> str:
    lines = [
        "% needs \\usepackage{booktabs,xcolor,amssymb}",
        r"\begin{table}",
        r"\centering",
        r"\begin{tabular}{" + "l" * len(table.columns) + "}",
        r"\toprule",
        " & ".join(map(_escape, table.columns)) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(map(_latex_cell, row)) + r" \\" for row in table.rows]
    notes = " ".join(note.removeprefix("- ") for note in table.notes)
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_escape(f'{table.title}. {notes}')}}}", r"\end{table}"]
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
