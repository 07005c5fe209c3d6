"""`hush design`."""

from typing import Annotated

import typer

from hush.cli._output import print_rows
from hush.theory import activation_names
from hush.theory import design as make_design


def design_command(
    activation: Annotated[str, typer.Argument(help=f"One of {', '.join(activation_names())}.", metavar="ACTIVATION")],
    sparsity: Annotated[float, typer.Option(help="The share of exact zeros, for example 0.85.")],
    width: Annotated[int | None, typer.Option(help="Units per layer.")] = None,
    depth: Annotated[int | None, typer.Option(help="Number of layers.")] = None,
    v_prime: Annotated[float | None, typer.Option(help="Choose the clip by its slope V′(q*).")] = None,
    clip: Annotated[float | None, typer.Option(help="Use this clip m.")] = None,
    positions: Annotated[int, typer.Option(help="Pixels of a CNN's feature maps; 1 for an MLP.")] = 1,
    q_star: Annotated[float, typer.Option(help="The variance of the pre-activations.")] = 1.0,
    odds: Annotated[float, typer.Option(help="Odds of exploding that the chosen clip may have.")] = 0.01,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose τ, m, σ_w and σ_b for a sparsity, and say whether the network will train.

    With --width and --depth the clip is the largest safe one; with --v-prime or --clip, that one is judged.

    Examples:

    hush design crelu --sparsity 0.85 --width 300 --depth 100

    hush design cst --sparsity 0.85 --v-prime 0.9 --width 300 --depth 100

    hush design shifted_relu --sparsity 0.7 --width 300 --depth 100 --json
    """
    result = make_design(
        activation,
        sparsity,
        width=width,
        depth=depth,
        v_prime=v_prime,
        clip=clip,
        positions=positions,
        q_star=q_star,
        odds=odds,
    )
    if as_json:
        typer.echo(result.to_json())
    else:
        print_rows(result.rows(), result.verdict, good=result.trains)
