"""`hush reproduce`: the paper's figures and tables; each kind registers its own commands."""

import typer

from hush.cli import reproduce_figures

app = typer.Typer(
    help="The paper again: its figures and tables, by number.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    epilog="""
**Examples**

`hush reproduce fig4`

`hush reproduce figures --out figures --format pdf`

`hush reproduce fig5 --data mnist`
""",
)
reproduce_figures.register(app)
