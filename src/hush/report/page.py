"""The one verb: runs and designs become one HTML file that needs no network."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Union

from hush import __version__
from hush.report import html, sections
from hush.theory import Design

if TYPE_CHECKING:
    from hush.train import Run

__all__ = ["report"]


def report(
    runs: Iterable[Union["Run", str, Path]] = (),
    designs: Iterable[Design] = (),
    path: str | Path = "report.html",
) -> Path:
    """Write a report of `runs` and `designs` to the file `path`: verdict first, then curves, layers, comparison.

    Arguments:
        runs: runs, run directories, or directories of run directories. A run that is not finished is shown as far as
            it has got.

    Raises:
        ValueError: if there is nothing to report, a path holds no run, a run directory is damaged, or the file cannot
            be written.
    """
    from hush.train import Run, find_runs

    found: list[Run] = []
    for run in runs:
        found += [run] if isinstance(run, Run) else find_runs([run])
    plans = list(designs)
    if not found and not plans:
        raise ValueError("there is nothing to report: give a run directory or a design.")
    title = sections.short_name(found[0]) if len(found) == 1 else f"{len(found)} runs" if found else _designs(plans)
    body = [
        html.heading(1, title),
        sections.summary(found, plans),
        *sections.of_runs(found),
        *sections.of_designs(plans),
    ]
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(html.page(f"hush: {title}", body, __version__), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the report cannot be written to {target}: {error.strerror or error}.") from error
    return target


def _designs(plans: list[Design]) -> str:
    if len(plans) > 1:
        return f"{len(plans)} designs"
    plan = plans[0]
    size = "" if plan.width is None else f", {plan.depth} layers × {plan.width}"
    return f"{plan.activation}, s = {plan.sparsity:g}{size}"
