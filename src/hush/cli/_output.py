"""Printing for people and for pipes."""

import os
import sys
from collections.abc import Iterable
from typing import Any

import typer

from hush.train.errors import Interrupted, MissingExtraError

# Whatever is wrong with the words of a call; typer does not export it by name.
_UsageError: Any = typer.BadParameter.__mro__[1]

_STOPPED = 130  # what a shell takes for Ctrl-C


def run(app: typer.Typer) -> None:
    """Run `app`; whatever goes wrong is one sentence on stderr.

    Exit code 2 says that the call was wrong, 1 that it was right and something else failed, 130 that it was stopped.
    With HUSH_TRACEBACK set, an error that is not ours to explain is raised, to see where it comes from.
    """
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        code = app(standalone_mode=False)
        if code == _STOPPED:  # so Typer ends after Ctrl-C
            _complain("stopped.")
    except _UsageError as error:
        code = _complain(error.format_message())
    except (ValueError, MissingExtraError) as error:
        if os.environ.get("HUSH_TRACEBACK"):
            raise
        code = _complain(str(error))
    except Interrupted as stopped:
        code = _complain(str(stopped), _STOPPED)
    except (typer.Abort, KeyboardInterrupt):
        code = _complain("stopped.", _STOPPED)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; Python must not complain of it again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError as error:
        code = _complain(f"there is not enough memory for this ({error or 'no more is known'}).", 1)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        code = _complain(f"{name}{error.strerror or error}.", 1)
    except Exception as error:
        if os.environ.get("HUSH_TRACEBACK"):
            raise
        code = _complain(
            f"something went wrong that should not ({type(error).__name__}: {error}); "
            "with HUSH_TRACEBACK=1 in the environment the same command shows where.",
            1,
        )
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
    # rich is loaded only where it is seen: it takes as long as all the rest of the command line.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, Text(value))
    console.print(table)
    style = "" if good is None else "bold green" if good else "bold red"
    console.print(Text(f"\n{closing}", style=style))
