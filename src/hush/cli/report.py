"""`hush report`."""

from pathlib import Path
from typing import Annotated

import typer

from hush.theory import Design, activation_names
from hush.theory import design as make_design


def report_command(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run directories, or directories of them.")] = None,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    design: Annotated[list[Path] | None, typer.Option(help="A design that `hush design --json` printed.")] = None,
    activation: Annotated[str | None, typer.Option(help=f"A new design: {', '.join(activation_names())}.")] = None,
    sparsity: Annotated[float | None, typer.Option(help="Its share of exact zeros, for example 0.85.")] = None,
    width: Annotated[int | None, typer.Option(help="Its units per layer.")] = None,
    depth: Annotated[int | None, typer.Option(help="Its number of layers.")] = None,
    v_prime: Annotated[float | None, typer.Option(help="Choose its clip by the slope V′(q*).")] = None,
    clip: Annotated[float | None, typer.Option(help="Use this clip m.")] = None,
) -> None:
    """One HTML file, readable anywhere, from runs or a design: the verdict, the curves, every layer, the comparison.

    Examples:

    hush report runs --out report.html

    hush report --activation crelu --sparsity 0.85 --width 300 --depth 100
    """
    designs = [_read(path) for path in design or ()]
    if (activation is None) != (sparsity is None):
        raise ValueError("--activation and --sparsity go together.")
    if activation is not None and sparsity is not None:
        designs.append(make_design(activation, sparsity, width=width, depth=depth, v_prime=v_prime, clip=clip))
    # matplotlib is loaded here and not at the top, so that `hush --help` is quick.
    from hush.report import report

    typer.echo(report(runs or (), designs, out))


def _read(path: Path) -> Design:
    try:
        return Design.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"there is no design at {path}: {error.strerror or error}.") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
