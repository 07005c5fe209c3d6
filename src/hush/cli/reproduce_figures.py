"""`hush reproduce fig1` … and `hush reproduce figures`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hush.reproduce.figures import FIGURES, FORMATS, find, save
from hush.reproduce.figures.save import check_formats, prepare
from hush.train.errors import MissingExtraError

__all__ = ["add_to"]

Out = Annotated[Path, typer.Option(help="The folder to write to.")]
Formats = Annotated[list[str], typer.Option("--format", help=f"{', '.join(FORMATS)}; may be repeated.")]
Runs = Annotated[Path, typer.Option(help="The folder of runs; the short ones are made there.")]
Data = Annotated[str, typer.Option(help="What the short runs learn from: digits or mnist.")]
Losses = Annotated[Path | None, typer.Option(help="Runs, or a CSV file, of the second failure mode.")]
Speed = Annotated[Path | None, typer.Option(help="A CSV file of bench rows.")]
Measure = Annotated[bool, typer.Option("--measure", help="Measure the speedup now, one layer of 1024.")]

_OUT, _FORMATS, _RUNS = Path("figures"), ["png", "svg"], Path("runs")


def add_to(app: typer.Typer) -> None:
    """Add a command for each figure, and `figures` for all of them."""
    own: dict[str, Callable[..., None]] = {"fig5": fig5_command, "fig14": fig14_command, "speedup": speedup_command}
    for name, entry in FIGURES.items():
        command = own.get(name) or _plain(name)
        app.command(name, help=f"{entry.summary[0].upper()}{entry.summary[1:]}.", rich_help_panel="Figures")(command)
    app.command("figures", rich_help_panel="Figures")(figures_command)


def _plain(name: str) -> Callable[..., None]:
    def command(out: Out = _OUT, formats: Formats = _FORMATS) -> None:
        _make(name, out, formats)

    return command


def fig5_command(out: Out = _OUT, formats: Formats = _FORMATS, runs: Runs = _RUNS, data: Data = "digits") -> None:
    _make("fig5", out, formats, runs=runs, data=data)


def fig14_command(out: Out = _OUT, formats: Formats = _FORMATS, losses: Losses = None) -> None:
    _make("fig14", out, formats, source=losses)


def speedup_command(
    out: Out = _OUT, formats: Formats = _FORMATS, speed: Speed = None, measure: Measure = False
) -> None:
    _make("speedup", out, formats, source=speed, measured=measure)


def figures_command(
    out: Out = _OUT,
    formats: Formats = _FORMATS,
    runs: Runs = _RUNS,
    data: Data = "digits",
    losses: Losses = None,
    speed: Speed = None,
    measure: Measure = False,
) -> None:
    """Every figure. What cannot be drawn is named at the end, with its reason, and the exit code is 2."""
    sources: dict[str, dict[str, Any]] = {
        "fig5": {"runs": runs, "data": data},
        "fig14": {"source": losses},
        "speedup": {"source": speed, "measured": measure},
    }
    check_formats(formats)
    prepare(out)
    left_out = []
    for name in FIGURES:
        try:
            _make(name, out, formats, **sources.get(name, {}))
        except (ValueError, MissingExtraError) as error:
            left_out.append(f"{name} is left out: {error}")
    if left_out:
        raise ValueError(" ".join(left_out))


def _make(name: str, out: Path, formats: list[str], **sources: Any) -> None:
    # Before minutes are spent on a figure that cannot be written.
    check_formats(formats)
    prepare(out)
    entry = find(name)
    for path in save(entry.draw(**sources), name, out, formats):
        typer.echo(path)
    typer.echo(entry.title)
    if entry.note:
        typer.echo(f"({entry.note})")
    typer.echo()
