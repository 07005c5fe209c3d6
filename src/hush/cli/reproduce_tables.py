"""`hush reproduce table1 | table-shallow-unclipped | table-shallow-clipped | second-failure-mode | design-table`."""

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from hush.reproduce.printed_table import PrintedTable
    from hush.reproduce.sweep import Swept

    # What is printed, the same for JSON, and what came of the sweep.
    _Read: TypeAlias = tuple[Sequence[PrintedTable], list[dict[str, Any]], Swept]

_Part = Annotated[str, typer.Option(help="dnn, cnn or both.")]
_Preset = Annotated[
    str,
    typer.Option(
        help="smoke (a minute), probe (the paper's first epoch), quick (hours on two cores) or paper (its protocol)."
    ),
]
_Rows = Annotated[str | None, typer.Option(help="Such as 1-5,8 or crelu-0.85 or cst-0.8-0.7; by default the preset's.")]
_Seeds = Annotated[int | None, typer.Option(help="Runs of each row; by default the preset's.", min=1)]
_Set = Annotated[list[str] | None, typer.Option("--set", help="Another value for a field of the recipe: lr=1e-3.")]
_Executor = Annotated[str, typer.Option(help="Who trains the runs: local (this machine) or ray (a cluster).")]
_Address = Annotated[str | None, typer.Option(help="Of the Ray cluster; without it a local one is started.")]
_Cpus = Annotated[int, typer.Option(help="CPUs of each Ray task, and threads of its run.", min=1)]
_Gpus = Annotated[float, typer.Option(help="GPUs of each Ray task.", min=0.0)]
_Collect = Annotated[bool, typer.Option("--collect", help="Ray machines do not share the root: they send runs back.")]
_Root = Annotated[Path, typer.Option(help="Where run directories are.")]
_Workers = Annotated[int | None, typer.Option(help="Runs at a time; by default one for each core.", min=1)]
_DataDir = Annotated[Path | None, typer.Option(help="Where your own copy of the data is.")]
_Show = Annotated[bool, typer.Option("--show", help="Train nothing: print what is there.")]
_AsDrawn = Annotated[
    bool,
    typer.Option(
        "--as-drawn",
        help="Train the rows as the paper draws them too (preset probe), and print what became of them.",
    ),
]
_Format = Annotated[
    str | None, typer.Option("--format", help="rich, markdown, csv or latex; else by the name of --out.")
]
_Out = Annotated[Path | None, typer.Option(help="Write to this file; into a directory, both .md and .csv.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_SECOND = "second-failure-mode"
_RESUMES = "What is done is skipped and what is not goes on: the same command resumes after Ctrl-C or a kill."
_HELP = {
    "table1": f"""Table 1: 100 layers on MNIST, and CNNs of 50 layers on CIFAR-10, beside the paper's values.

    {_RESUMES}

    Examples:

    hush reproduce table1 --preset smoke

    hush reproduce table1 --part dnn --rows 1-6,crelu-0.85

    hush reproduce table1 --preset paper --executor ray --address auto --gpus 1
    """,
    "table-shallow-unclipped": f"""The unclipped networks of 30 layers on MNIST, beside the paper's values.

    {_RESUMES}

    Example:

    hush reproduce table-shallow-unclipped --preset quick --seeds 5
    """,
    "table-shallow-clipped": f"""The clipped networks of 30 layers on MNIST, beside the paper's values.

    {_RESUMES}

    Examples:

    hush reproduce table-shallow-clipped --preset quick --rows crelu

    hush reproduce table-shallow-clipped --show --format markdown --out results.md
    """,
    _SECOND: f"""Loss curves of high sparsity with a low clip, which learns at first and comes apart later.

    The CSV holds the curves: sparsity, clip, seed, step, loss. {_RESUMES}

    Example:

    hush reproduce second-failure-mode --preset quick --out second_failure_mode.csv
    """,
}


def add_to(app: typer.Typer) -> None:
    """Add the table commands to the group."""
    for name, help_text in _HELP.items():
        app.command(name, help=help_text)(_command(name))
    app.command("design-table")(design_table)


def _command(name: str) -> Callable[..., None]:
    def command(
        part: _Part = "both",
        preset: _Preset = "quick",
        rows: _Rows = None,
        seeds: _Seeds = None,
        given: _Set = None,
        executor: _Executor = "local",
        address: _Address = None,
        cpus: _Cpus = 1,
        gpus: _Gpus = 0.0,
        collect: _Collect = False,
        root: _Root = Path("runs"),
        workers: _Workers = None,
        data_dir: _DataDir = None,
        show: _Show = False,
        as_drawn: _AsDrawn = False,
        form: _Format = None,
        out: _Out = None,
        as_json: _Json = False,
    ) -> None:
        from hush.reproduce.experiments import parse_fields
        from hush.reproduce.sweep import Cluster

        # Before hours of training.
        choose_format(form, out)
        _make_folder(out)
        asked: dict[str, Any] = {"seeds": seeds, "given": parse_fields(given or []), "root": root, "show": show}
        asked |= {"executor": executor, "cluster": Cluster(address, cpus, gpus, collect)}
        asked |= {"workers": workers, "data_dir": data_dir}
        if name != _SECOND:
            asked |= {"part": part, "rows": rows, "as_drawn": as_drawn}
        read = _second_failure if name == _SECOND else _table
        printed, values, swept = read(name, preset, asked)
        if as_json:
            typer.echo(json.dumps(values, indent=2, ensure_ascii=False))
        else:
            which = (name, part if name == "table1" else "both", preset)
            emit(printed, form, out, "_".join(w for w in which if w not in ("both", "quick")).replace("-", "_"))
        if not show:
            for sentence in swept.sentences():
                typer.echo(sentence, err=True)
        if swept.errors or swept.interrupted:
            raise typer.Exit(130 if swept.interrupted else 1)

    drop = {"table1": (), _SECOND: ("part", "rows", "as_drawn")}.get(name, ("part",))
    kept = [p for p in inspect.signature(command).parameters.values() if p.name not in drop]
    command.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    return command


def _table(name: str, preset: str, asked: dict[str, Any]) -> "_Read":
    from hush.reproduce.comparison_table import compare_results
    from hush.reproduce.train_and_read import reproduce_table

    tables, swept = reproduce_table(name, preset, **asked)
    return [compare_results(table, command_line()) for table in tables], [table.to_dict() for table in tables], swept


def _second_failure(_: str, preset: str, asked: dict[str, Any]) -> "_Read":
    from hush.reproduce.second_failure import print_histories, second_failure_mode

    found, recipe, swept = second_failure_mode(preset, **asked)
    return [print_histories(found, recipe, command_line())], [history.to_dict() for history in found], swept


def design_table(form: _Format = None, out: _Out = None, as_json: _Json = False) -> None:
    """Recompute τ, m, V′ and V″ of every row of the paper's tables; nothing is trained.

    Examples:

    hush reproduce design-table

    hush reproduce design-table --format latex --out designs.tex
    """
    from hush.reproduce.design_table import compare_designs

    choose_format(form, out)
    _make_folder(out)
    printed = compare_designs(command_line())
    if as_json:
        typer.echo(json.dumps(list(printed.records), indent=2, ensure_ascii=False))
    else:
        emit([printed], form, out, "design_table")


def command_line() -> str:
    """The command as it was typed, without where the program lies."""
    return "hush " + " ".join(map(shlex.quote, sys.argv[1:]))


def choose_format(form: str | None, out: Path | None) -> str:
    """The format asked for, or the one the file's name tells.

    Raises:
        ValueError: if it is none of FORMATS.
    """
    from hush.reproduce.printed_table import FORMATS

    if form is None and out is not None:
        form = {".md": "markdown", ".csv": "csv", ".tex": "latex"}.get(out.suffix)
    if form is not None and form not in FORMATS:
        raise ValueError(f"unknown format {form!r}; there are {', '.join(FORMATS)}.")
    return form or "rich"


def emit(tables: Sequence["PrintedTable"], form: str | None, out: Path | None, name: str) -> None:
    """Print the tables, or write them: to a file, or as `name`.md and `name`.csv into a directory."""
    from hush._files import replace_text
    from hush.reproduce.printed_table import render

    if out is None:
        terminal = sys.stdout.isatty()
        typer.echo(render(tables, choose_format(form, out), colour=terminal, width=None if terminal else 200))
        return
    files = {out: choose_format(form, out)}
    if _is_folder(out):
        files = {out / f"{name}.md": "markdown", out / f"{name}.csv": "csv"}
    _make_folder(out)
    try:
        for file, kind in files.items():
            replace_text(file, render(tables, kind, width=200))
            typer.echo(str(file), err=True)
    except OSError as error:
        raise ValueError(f"cannot write {out}: {error.strerror or error}.") from error


def _is_folder(out: Path) -> bool:
    """A name without an ending is that of a folder."""
    return out.is_dir() or not out.suffix


def _make_folder(out: Path | None) -> None:
    """The folder that what is written to `out` goes into."""
    if out is None:
        return
    folder = out if _is_folder(out) else out.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write {out}: {error.strerror or error}.") from error
