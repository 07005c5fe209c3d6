"""`hush reproduce`: the paper's tables and figures."""

import typer

from hush.cli import reproduce_tables

app = typer.Typer(invoke_without_command=True)


@app.callback()
def _reproduce(context: typer.Context) -> None:
    """Train and recompute what the paper reports, and set it beside the printed values."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


reproduce_tables.add_to(app)
