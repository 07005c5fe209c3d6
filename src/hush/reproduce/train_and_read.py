"""The one verb: a table of the paper becomes a sweep, and the sweep a table beside the paper's."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hush.reproduce.experiments import EXPERIMENTS, experiment
from hush.reproduce.results import ResultTable, read_results
from hush.reproduce.sweep import Swept, check_root, run_sweep

__all__ = ["reproduce_table"]

_AS_DRAWN = "probe"  # the preset that begins as the paper does
_BEGINS_ELSEWHERE = "quick"


def reproduce_table(
    name: str,
    preset: str = "quick",
    *,
    part: str = "both",
    rows: str | None = None,
    seeds: int | None = None,
    given: Mapping[str, Any] | None = None,
    root: str | Path = "runs",
    show: bool = False,
    as_drawn: bool = False,
    **sweep: Any,
) -> tuple[list[ResultTable], Swept]:
    """Train what is missing of a table and read it, one ResultTable for each part.

    Arguments:
        name: table1, table-shallow-unclipped or table-shallow-clipped.
        preset, rows, seeds, given: as for `experiment`.
        part: dnn, cnn, or both where the table has both.
        root: where the run directories are.
        show: train nothing.
        as_drawn: of the preset quick, whose networks do not begin as the paper's: train the same rows as the paper
            draws and trains them too, one seed of its first epoch (preset probe), and tell what became of them.
        sweep: the arguments of `run_sweep`.

    Raises:
        ValueError: whatever is wrong with an argument, before anything is trained.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown table {name!r}; there are {', '.join(EXPERIMENTS)}.")
    parts = list(EXPERIMENTS[name].parts) if part == "both" else [part]
    if as_drawn and preset != _BEGINS_ELSEWHERE:
        raise ValueError(
            f"as_drawn goes with the preset {_BEGINS_ELSEWHERE}, not with {preset}: its networks begin as the paper "
            f"draws them already."
        )
    made = [experiment(name, preset, part=p, rows=rows, seeds=seeds, given=given) for p in parts]
    drawn = [experiment(name, _AS_DRAWN, part=p, rows=rows, seeds=1) for p in parts] if as_drawn else []
    swept = Swept()
    check_root(root, must_exist=show)
    if not show:
        swept = run_sweep([config for e in (*made, *drawn) for config in e.configs], root, **sweep)
    tables = [read_results(e, root) for e in made]
    for i, e in enumerate(drawn):
        tables[i] = replace(tables[i], drawn=read_results(e, root))
    return tables, swept
