"""Printing for people and for pipes."""

import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hush.train.errors import Interrupted, MissingExtraError

# Whatever is wrong with the words of a call; typer does not export it by name.
_UsageError: Any = typer.BadParameter.__mro__[1]


def run(app: typer.Typer) -> None:
    """Run `app`; whatever is wrong with a call is one sentence on stderr and exit code 2."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        code = app(standalone_mode=False)
    except _UsageError as error:
        code = _complain(error.format_message())
    except ValueError as error:
        code = _complain(str(error))
    except MissingExtraError as error:
        code = _complain(str(error))
    except Interrupted as stopped:
        code = _complain(str(stopped), 130)
    except typer.Abort:
        code = _complain("stopped.", 130)
    raise SystemExit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int = 2) -> int:
    print(f"hush: {' '.join(message.split())}", file=sys.stderr)
    return code


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
