"""`hush reproduce`: the paper's tables and figures; each kind adds its own commands."""

import typer

from hush.cli import reproduce_figures, reproduce_tables

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode="markdown",
    epilog="""
**Examples**

`hush reproduce table1 --preset smoke`

`hush reproduce fig4`

`hush reproduce figures --out figures --format pdf`
""",
)


@app.callback()
def _reproduce(context: typer.Context) -> None:
    """Train, recompute and draw what the paper reports, and set it beside the printed values."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


reproduce_tables.add_to(app)
reproduce_figures.add_to(app)
