"""`hush diagnose`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hush.theory import ACTIVATIONS

if TYPE_CHECKING:
    from hush.diagnose import Diagnosis


def diagnose_command(
    activation: Annotated[str | None, typer.Option(help=f"One of {', '.join(ACTIVATIONS)}.")] = None,
    sparsity: Annotated[float | None, typer.Option(help="The share of exact zeros, for example 0.85.")] = None,
    width: Annotated[int, typer.Option(help="Units per layer; channels of a CNN.")] = 300,
    depth: Annotated[int, typer.Option(help="Number of layers.")] = 100,
    v_prime: Annotated[float | None, typer.Option(help="Choose the clip by its slope V′(q*).")] = None,
    clip: Annotated[float | None, typer.Option(help="Use this clip m.")] = None,
    network: Annotated[str, typer.Option(help="mlp or cnn.")] = "mlp",
    weights: Annotated[str, typer.Option(help="gaussian, orthogonal or delta_orthogonal.")] = "gaussian",
    seed: Annotated[int, typer.Option(help="Seed of the initialisation.")] = 0,
    inputs: Annotated[int, typer.Option(help="How many digits to run.")] = 64,
    checkpoint: Annotated[Path | None, typer.Option(help="Diagnose this saved run instead.")] = None,
    every: Annotated[int, typer.Option(help="Print every n-th layer; 0 chooses.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the figures against depth into this file.")] = None,
) -> None:
    """Build, initialise and diagnose a network on the embedded digits, or diagnose a saved run.

    Examples:

    hush diagnose --activation crelu --sparsity 0.85 --depth 100 --width 300

    hush diagnose --activation shifted_relu --sparsity 0.7 --plot out.png

    hush diagnose --checkpoint run.pt --json
    """
    if checkpoint is None and (activation is None or sparsity is None):
        raise ValueError("give --activation and --sparsity, or --checkpoint.")
    if checkpoint is not None and (activation is not None or sparsity is not None):
        raise ValueError("--checkpoint brings its own design: leave --activation and --sparsity out.")
    if every < 0:
        raise ValueError(f"--every must be 0, which chooses, or more, got {every}.")
    # torch and matplotlib are loaded here and not at the top, so that `hush --help` is quick.
    if plot is not None:
        from hush.diagnose.plot import check_plot_path

        check_plot_path(plot)
    from hush.diagnose.on_digits import diagnose_checkpoint, diagnose_new

    if checkpoint is not None:
        result = diagnose_checkpoint(checkpoint, inputs)
    else:
        assert activation is not None
        assert sparsity is not None
        choice = {"width": width, "depth": depth, "v_prime": v_prime, "clip": clip}
        result = diagnose_new(activation, sparsity, choice, network, weights, seed, inputs)
    if plot is not None:
        result.plot(plot)
    _print(result, every, as_json)


def _print(result: "Diagnosis", every: int, as_json: bool) -> None:
    if as_json:
        typer.echo(result.to_json())
        return
    text = str(result) if every < 1 else "\n\n".join([result.table(every), result.verdict])
    if not sys.stdout.isatty():
        typer.echo(text)
        return
    head, _, closing = text.rpartition("\n\n")
    typer.echo(head)
    # Without a prediction there is nothing to be glad or sorry about.
    colour = None if result.trains is None else "green" if result.trains else "red"
    typer.secho(f"\n{closing}", fg=colour, bold=True)
