"""The `hush` command and what all its subcommands share."""

from typing import Annotated

import typer

from hush import __version__
from hush.cli._lazy import LazyCommand, lazy_group
from hush.cli._output import run

COMMANDS = {
    "demo": LazyCommand("hush.cli.demo", "demo_command", "What hush is for, in three minutes on the embedded digits."),
    "design": LazyCommand(
        "hush.cli.design",
        "design_command",
        "Choose τ, m, σ_w and σ_b for a sparsity, and say whether the network will train.",
    ),
    "diagnose": LazyCommand(
        "hush.cli.diagnose",
        "diagnose_command",
        "Build, initialise and diagnose a network on the embedded digits, or diagnose a saved run.",
    ),
    "explore": LazyCommand(
        "hush.cli.explore",
        "explore_command",
        "Move the theory by sliders in the browser: V(q), R(ρ), the bands, the odds and the verdict.",
    ),
    "report": LazyCommand(
        "hush.cli.report",
        "report_command",
        "One HTML file, readable anywhere, from runs or a design: the verdict, the curves, every layer.",
    ),
    "train": LazyCommand(
        "hush.cli.train",
        "train_command",
        "Train one network and leave a run directory: config, curves, layers, checkpoint, result.",
    ),
    "data": LazyCommand("hush.cli.data", "app", "List, fetch and find data sets."),
    "bench": LazyCommand("hush.cli.bench", "bench_app", "Time the sparse engine beside other runtimes, as ratios."),
    "reproduce": LazyCommand(
        "hush.cli.reproduce",
        "app",
        "Train, recompute and draw what the paper reports, and set it beside the printed values.",
    ),
}

app = typer.Typer(
    name="hush",
    cls=lazy_group(COMMANDS),
    help="Deep networks whose neurons stay quiet, and train anyway.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
**Examples**

`hush demo`

`hush design crelu --sparsity 0.85 --width 300 --depth 100`

`hush design cst --sparsity 0.85 --v-prime 0.9 --width 300 --depth 100 --json`

`hush diagnose --activation crelu --sparsity 0.85 --depth 100 --width 300`

`hush data fetch mnist`

`hush train --data digits --depth 30 --sparsity 0.85`

`hush reproduce table1 --preset smoke`

`hush bench inference --batch 1`

`hush reproduce fig4`

`hush report runs --out report.html`

`hush explore`
""",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hush {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a bad value is one sentence and exit code 2."""
    run(app)
