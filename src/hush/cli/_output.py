"""Printing for people and for pipes."""

import sys
from collections.abc import Iterable

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def run(app: typer.Typer) -> None:
    """Run `app`; a ValueError is one sentence on stderr and exit code 2."""
    try:
        app()
    except ValueError as error:
        print(f"hush: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def print_rows(rows: Iterable[tuple[str, str]], closing: str, *, good: bool | None = None) -> None:
    """A two-column table and a closing sentence: rich in a terminal, plain when piped."""
    rows = list(rows)
    if not sys.stdout.isatty():
        left = max(len(name) for name, _ in rows)
        print("\n".join(f"{name:<{left}}  {value}" for name, value in rows))
        print(f"\n{closing}")
        return
    console = Console()
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, Text(value))
    console.print(table)
    style = "" if good is None else "bold green" if good else "bold red"
    console.print(Text(f"\n{closing}", style=style))
