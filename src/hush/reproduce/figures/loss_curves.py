"""Figure 14: the loss curves of the second failure mode."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from hush._style import BLUE, GREEN, ORANGE, PURPLE, RED, name_of, panels, stamp, styled
from hush.report.run_origin import describe_origins, origin_of_run
from hush.reproduce.figures.committed_results import committed, remarks_of
from hush.reproduce.second_failure import SETTINGS

if TYPE_CHECKING:
    from hush.train import Run

__all__ = ["Curve", "draw_from_source", "draw_loss_curves", "read_csv", "read_runs"]

_FILE = "second_failure_mode.csv"
_COLUMNS = ("sparsity", "clip", "seed", "step", "loss")
_HOW = "train them (hush train --activation cst --sparsity 0.85 --clip 0.81) and pass their folder"


@dataclass(frozen=True, eq=False)
class Curve:
    """The training loss of one run; `accuracy` is that on the test set at its end, where it is known."""

    sparsity: float
    clip: float
    seed: int
    step: NDArray[np.float64]
    loss: NDArray[np.float64]
    accuracy: float | None


def draw_from_source(source: str | Path | None = None) -> Figure:
    """The curves of `source`: a CSV file, a run directory or a folder of them; by default the committed results.

    Raises:
        ValueError: if there are none, or none of the two panels' settings is among them.
    """
    if source is None:
        found = committed(_FILE)
        if not found:
            raise ValueError(f"there are no loss curves to draw: docs/results/{_FILE} is not here; {_HOW}.")
        source = found[0]
    path = Path(source)
    if path.is_file():
        figure = draw_loss_curves(read_csv(path))
        stamp(figure, " ".join(remarks_of(path)) or f"{path.name} does not say when and where its runs were trained.")
        return figure
    runs = _runs_of_cst(path)
    figure = draw_loss_curves(read_runs(path))
    stamp(figure, describe_origins([origin_of_run(run.directory) for run in runs if run.result is not None]))
    return figure


def read_csv(path: Path) -> list[Curve]:
    """Curves from the columns sparsity, clip, seed, step, loss and, if it is there, test_accuracy.

    Raises:
        ValueError: if the file is not such a table.
    """
    groups: dict[tuple[float, float, int], list[tuple[float, float]]] = {}
    accuracies: dict[tuple[float, float, int], float] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(line for line in lines if not line.startswith("#"))
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path} has no column {missing[0]!r}; loss curves have {', '.join(_COLUMNS)}.")
        for row in reader:
            try:
                key = (float(row["sparsity"]), round(float(row["clip"]), 2), int(row["seed"]))
                groups.setdefault(key, []).append((float(row["step"]), float(row["loss"] or "nan")))
                if row.get("test_accuracy"):
                    accuracies[key] = float(row["test_accuracy"])
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {reader.line_num}, is damaged: {error}.") from error
    curves = []
    for key, points in groups.items():
        step, loss = np.array(sorted(points)).T
        curves.append(Curve(*key, step, loss, accuracies.get(key)))
    return curves


def read_runs(path: Path) -> list[Curve]:
    """Curves from a run directory or a folder of them; other activations than CST are left out."""
    curves = []
    for run in _runs_of_cst(path):
        plan = run.config.design()
        assert plan.clip is not None
        accuracy = None if run.result is None else run.result.test_accuracy
        clip, losses = round(plan.clip, 2), run.losses
        curves.append(Curve(round(plan.sparsity, 4), clip, run.config.seed, losses["step"], losses["loss"], accuracy))
    return curves


def _runs_of_cst(path: Path) -> list["Run"]:
    from hush.train import find_runs

    return [run for run in find_runs([path]) if run.config.design().activation == "cst"]


@styled
def draw_loss_curves(curves: Sequence[Curve]) -> Figure:
    """Two panels, a line for each seed: the running median over the recorded losses, which stand faintly behind it.

    Raises:
        ValueError: if no curve belongs to either panel.
    """
    figure, axes = panels(1, 2, 3.2, sharey=True)
    colours = (BLUE, ORANGE, GREEN, RED, PURPLE)
    drawn = 0
    for panel, letter, setting in zip(axes, "ab", SETTINGS, strict=True):
        sparsity, clip = setting.sparsity, setting.clip
        own = [c for c in curves if abs(c.sparsity - sparsity) < 1e-6 and abs(c.clip - clip) < 0.0051 and c.step.size]
        for curve, colour in zip(sorted(own, key=lambda c: c.seed), colours, strict=False):
            label = f"seed {curve.seed}" if curve.accuracy is None else f"{curve.accuracy:.2f}"
            panel.plot(curve.step, curve.loss, color=colour, lw=0.5, alpha=0.3)
            panel.plot(curve.step, running_median(curve.loss), color=colour, lw=1.4, label=label)
        drawn += len(own)
        if own:
            known = all(c.accuracy is not None for c in own)
            # Below the panel: spikes reach everywhere inside it.
            title = "test accuracy" if known else None
            panel.legend(
                title=title,
                title_fontsize=8,
                loc="upper center",
                bbox_to_anchor=(0.5, -0.2),
                ncols=5,
                handlelength=1.2,
                columnspacing=1.0,
            )
        else:
            panel.text(0.5, 0.5, "no runs yet", transform=panel.transAxes, ha="center", va="center")
        panel.set_title(rf"({letter}) {name_of('cst')}, $s={sparsity:g}$, $m={clip:g}$")
        panel.set_xlabel("step")
        panel.xaxis.set_major_locator(MaxNLocator(4))
    axes[0].set_ylabel("training loss")
    if not drawn:
        wanted = " or ".join(f"s = {one.sparsity:g}, m = {one.clip:g}" for one in SETTINGS)
        raise ValueError(f"there is no run of CST at {wanted} among the curves; {_HOW}.")
    return figure


def running_median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median of each value and its neighbours, a hundredth of the curve to either side; NaN is left out."""
    reach = max(1, values.size // 100)
    medians = np.full(values.size, np.nan)
    for i in range(values.size):
        window = values[max(0, i - reach) : i + reach + 1]
        window = window[np.isfinite(window)]
        if window.size:
            medians[i] = np.median(window)
    return medians
