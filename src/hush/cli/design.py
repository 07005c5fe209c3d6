"""`hush design`."""

from typing import Annotated, cast

import typer

from hush.cli._output import print_rows
from hush.theory import BRANCH_SCALES, activation_names
from hush.theory import design as make_design
from hush.theory.block.norm import Norm
from hush.theory.stream_designing import BLOCKS


def design_command(
    activation: Annotated[str, typer.Argument(help=f"One of {', '.join(activation_names())}.", metavar="ACTIVATION")],
    sparsity: Annotated[
        float | None, typer.Option(help="The share of exact zeros, for example 0.85; none for relu, gelu, silu, tanh.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Units per layer.")] = None,
    depth: Annotated[int | None, typer.Option(help="Number of layers, or of blocks.")] = None,
    v_prime: Annotated[float | None, typer.Option(help="Choose the clip by its slope V′(q*).")] = None,
    clip: Annotated[float | None, typer.Option(help="Use this clip m.")] = None,
    positions: Annotated[int, typer.Option(help="Pixels of a CNN's feature maps; 1 for an MLP.")] = 1,
    q_star: Annotated[float, typer.Option(help="The variance of the pre-activations.")] = 1.0,
    odds: Annotated[float, typer.Option(help="Odds of exploding that the chosen clip may have.")] = 0.01,
    block: Annotated[str, typer.Option(help=f"What the network repeats: chain, {', '.join(BLOCKS)}.")] = "chain",
    norm: Annotated[str, typer.Option(help="In front of a residual block's branch: none, rms or layer.")] = "none",
    post_norm: Annotated[bool, typer.Option("--post-norm", help="The norm stands behind the sum.")] = False,
    branch_scale: Annotated[
        str, typer.Option(help=f"Of a residual block's branch: a number, {', '.join(BRANCH_SCALES)}.")
    ] = "1/sqrt(depth)",
    hidden: Annotated[int | None, typer.Option(help="Hidden units of a feed-forward block; 4 × width.")] = None,
    through_scale: Annotated[
        bool | None,
        typer.Option(
            "--through-scale/--constant-scale",
            help="Of the relative activations: the gradient goes through rms(h), as it does by default, or not.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose τ, m, σ_w and σ_b for a sparsity, and say whether the network will train.

    With --width and --depth the clip is the largest safe one; with --v-prime or --clip, that one is judged. With
    --block the network is a residual one: x ← x + βWφ(n(x)) (residual), x ← x + βW₂φ(W₁n(x)) (feedforward), or gated.

    Examples:

    hush design crelu --sparsity 0.85 --width 300 --depth 100

    hush design cst --sparsity 0.85 --v-prime 0.9 --width 300 --depth 100

    hush design shifted_relu --sparsity 0.7 --width 300 --depth 100 --json

    hush design crelu --sparsity 0.95 --width 300 --depth 30 --block feedforward --norm rms --hidden 1200

    hush design relative_crelu --sparsity 0.95 --width 300 --depth 100
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
        block=block,
        norm=None if norm == "none" else cast(Norm, norm),
        post_norm=post_norm,
        branch_scale=_number_or_rule(branch_scale),
        hidden=hidden,
        through_scale=through_scale,
    )
    if as_json:
        typer.echo(result.to_json())
    else:
        print_rows(result.rows(), result.verdict, good=result.trains)


def _number_or_rule(text: str) -> float | str:
    """A branch scale as typed: a number where it is one, else the rule of that name."""
    try:
        return float(text)
    except ValueError:
        return text
