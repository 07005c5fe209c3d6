"""The `hush` command and what all its subcommands share."""

from typing import Annotated

import typer

from hush import __version__
from hush.cli import bench, data, demo, design, diagnose, report, reproduce, train
from hush.cli._output import run

app = typer.Typer(
    name="hush",
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

`hush train --data mnist --depth 30 --sparsity 0.85`

`hush reproduce table1 --preset smoke`

`hush bench inference --batch 1`

`hush reproduce fig4`

`hush report runs --out report.html`
""",
)
app.command("demo")(demo.demo_command)
app.command("design")(design.design_command)
app.command("diagnose")(diagnose.diagnose_command)
app.command("report")(report.report_command)
app.command("train")(train.train_command)
app.add_typer(data.app, name="data")
app.add_typer(bench.bench_app, name="bench")
app.add_typer(reproduce.app, name="reproduce")


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
