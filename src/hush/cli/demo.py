"""`hush demo`."""

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hush.reproduce.demo import Demo

_NETWORKS = ("network", "before training", "test accuracy", "zeros", "lowest layer")
# How far the sentences of the story stand from the left.
_INDENT = 13
_STEPS = ("step of", "on torch", "accelerated", "")


def demo_command(
    root: Annotated[Path, typer.Option(help="Where the runs, the figure and the report go.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How often each network is trained.")] = 2,
    progress: Annotated[bool, typer.Option(help="Draw progress bars.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What hush is for, in three minutes on the embedded digits.

    A residual network with 95 % zeros, held, beside its dense ReLU twin and beside one whose zeros drift; and as many
    zeros in a chain of shifted ReLUs, which explodes, as said before training. Every claim is held against what this
    run measured. What is finished under --root is not trained again.

    Examples:

    hush demo

    hush demo --seeds 1 --root demo --json
    """
    # torch and Lightning are loaded here and not at the top, so that `hush demo --help` is quick.
    from hush.cli._lightning import load_lightning

    load_lightning()
    from hush.reproduce.demo import run_demo

    # Bars are for people who watch: in a pipe or a log they would be lines of noise.
    bars = progress and not as_json and sys.stderr.isatty()
    demo = run_demo(root, seeds=seeds, say=_silent if as_json else _say, progress=bars)
    if as_json:
        typer.echo(demo.to_json())
    else:
        print_demo(demo)


def _silent(_: str) -> None:
    pass


def _say(line: str) -> None:
    """A line of the story; in a terminal its words wrap under each other, in a pipe it stays one line."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        start = "\n" if line.startswith("\n") else ""
        line = start + textwrap.fill(line.strip("\n"), width, subsequent_indent=" " * _INDENT)
    typer.echo(line)


def print_demo(demo: "Demo") -> None:
    """Two tables and the claims: rich in a terminal, plain when piped."""
    show = _show_rich if sys.stdout.isatty() else _show_plain
    show(_NETWORKS, network_cells(demo))
    show(_STEPS, step_cells(demo))
    print()
    for claim in demo.claims:
        mark = "Holds" if claim.holds else "Does not hold here"
        colour = typer.colors.GREEN if claim.holds else typer.colors.RED
        # typer leaves the colour out where nobody sees it.
        typer.echo(f"{typer.style(mark, fg=colour)}: {claim.claim}.\n  {claim.measured}")
    typer.echo(f"\nThe figure: {demo.figure}\nEvery run with its plots: {demo.report}")


def network_cells(demo: "Demo") -> list[tuple[str, ...]]:
    """A row for each network, as texts."""
    return [
        (
            row.name,
            "should train" if row.predicted_trains else "will not train",
            " ".join(f"{accuracy:.3f}" for accuracy in row.test_accuracies),
            f"{row.mean_zeros:.3f}",
            f"{row.lowest_layer:.3f}",
        )
        for row in demo.networks
    ]


def step_cells(demo: "Demo") -> list[tuple[str, ...]]:
    """A row for each network that was timed: ms on torch and accelerated, and what of it the engine fuses."""
    cells: list[tuple[str, ...]] = []
    for plain in (step for step in demo.steps if not step.accelerated):
        fast = next((step for step in demo.steps if step.accelerated and step.network == plain.network), None)
        cells.append(
            (
                plain.network,
                f"{plain.ms:.1f} ms",
                f"{fast.ms:.1f} ms (×{plain.ms / fast.ms:.2f})" if fast else "–",
                f"{fast.fused} of {fast.linears} Linears fused" if fast else "",
            )
        )
    return cells


def _show_plain(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    print()
    for cells in (names, *rows):
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip())


def _show_rich(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in names:
        table.add_column(name, no_wrap=True)
    for cells in rows:
        table.add_row(*cells)
    console = Console()
    console.print()
    console.print(table)
