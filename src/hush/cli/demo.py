"""`hush demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hush.reproduce.demo import Demo


def demo_command(
    root: Annotated[Path, typer.Option(help="Where the runs and the report go.")] = Path("runs/demo"),
    progress: Annotated[bool, typer.Option(help="Draw progress bars.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What hush is for, in three minutes on the embedded digits.

    Three 30-layer networks, 85 % zeros each: shifted ReLU and soft threshold explode, the designed CReLU trains, as
    said before training. What is finished under --root is not trained again.

    Examples:

    hush demo

    hush demo --root demo --json
    """
    # torch and Lightning are loaded here and not at the top, so that `hush demo --help` is quick.
    from hush.cli._lightning import load_lightning

    load_lightning()
    from hush.reproduce.demo import run_demo

    demo = run_demo(root, say=_silent if as_json else typer.echo, progress=progress and not as_json)
    if as_json:
        typer.echo(demo.to_json())
    else:
        _print(demo)


def _silent(_: str) -> None:
    pass


def _print(demo: "Demo") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Three deep networks, 85 % zeros", title_justify="left")
    for column in ("network", "predicted", "accuracy", "sparsity", "dense ms", "accelerated ms"):
        table.add_column(column, justify="left" if column in ("network", "predicted") else "right", no_wrap=True)
    for row in demo.rows:
        told = "trains" if row.predicted_trains else "explodes"
        right = row.outcome == "not yet trained" or row.predicted_trains == (row.outcome == "trained")
        table.add_row(
            row.network,
            told if right else f"{told} (wrong)",
            f"{row.test_accuracy:.3f}",
            f"{row.sparsity:.3f}",
            f"{row.dense_ms:.1f}",
            f"{row.accelerated_ms:.1f} (×{row.dense_ms / row.accelerated_ms:.1f})",
            style="green" if row.outcome == "trained" else "red",
        )
    console = Console()
    console.print()
    console.print(table)
    console.print("Accuracy and sparsity are those of the test set after training; ms are of one step of SGD.")
    console.print(f"The report with the plots: {demo.report}", soft_wrap=True, highlight=False)
