"""The second failure mode: high sparsity with a low clip learns at first and comes apart later (paper, appendix G).

The paper draws the loss curves of five runs each of CST with s = 0.85, m = 0.81 and with s = 0.9, m = 0.76. It does not
say of which depth; the appendix explains what section 4 saw at 100 layers, so that is the depth of the preset `paper`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hush.reproduce.presets import Preset, preset
from hush.reproduce.printed_table import Cell, Mood, PrintedTable
from hush.reproduce.provenance import protocol, provenance_of_runs
from hush.reproduce.sweep import Swept, check_root, run_sweep
from hush.train.config import TrainConfig
from hush.train.result import Run, load_run

__all__ = [
    "SETTINGS",
    "LossHistory",
    "Setting",
    "print_histories",
    "read_histories",
    "second_failure_configs",
    "second_failure_mode",
]


@dataclass(frozen=True)
class Setting:
    """What one of the paper's two plots shows, both of CST."""

    sparsity: float
    clip: float


SETTINGS = (Setting(0.85, 0.81), Setting(0.9, 0.76))
# Points of a curve in the CSV; each is the mean over as many recorded losses as it takes.
_POINTS = 500


@dataclass(frozen=True, eq=False)
class LossHistory:
    """The loss of one run: how low it got over an epoch, how far it rose again afterwards, and its curve."""

    run: Run
    setting: Setting
    lowest: float
    rise: float
    steps: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def epochs(self) -> int:
        return len(self.run.metrics["train_loss"])

    def to_dict(self) -> dict[str, Any]:
        result = self.run.result
        return {
            "sparsity": self.setting.sparsity,
            "clip": self.setting.clip,
            "seed": self.run.config.seed,
            "epochs": self.epochs,
            "result": None if result is None else json.loads(result.to_json()),
            "lowest": _or_none(self.lowest),
            "rise": _or_none(self.rise),
            "steps": [_or_none(step) for step in self.steps],
            "losses": [_or_none(loss) for loss in self.losses],
        }


def _or_none(value: float) -> float | None:
    """JSON has no word for what is not finite."""
    return value if math.isfinite(value) else None


def second_failure_configs(recipe: Preset) -> list[TrainConfig]:
    """Both settings, seed by seed."""
    first = [
        TrainConfig(activation="cst", sparsity=setting.sparsity, clip=setting.clip, **recipe.fields)
        for setting in SETTINGS
    ]
    return [config.with_seed(seed) for seed in range(recipe.seeds) for config in first]


def second_failure_mode(
    preset_name: str = "quick",
    *,
    seeds: int | None = None,
    given: Mapping[str, Any] | None = None,
    root: str | Path = "runs",
    show: bool = False,
    **sweep: Any,
) -> tuple[list[LossHistory], Preset, Swept]:
    """Train what is missing and read the loss curves; arguments as for `reproduce_table`."""
    recipe = preset(preset_name, "second", seeds).with_fields(given or {})
    configs = second_failure_configs(recipe)
    check_root(root, must_exist=show)
    swept = Swept() if show else run_sweep(configs, root, **sweep)
    return read_histories(configs, root), recipe, swept


def read_histories(configs: list[TrainConfig], root: str | Path) -> list[LossHistory]:
    """Those of the runs that have begun, by setting and seed."""
    found = [load_run(Path(root) / c.name) for c in configs if (Path(root) / c.name / "losses.csv").is_file()]
    return sorted(map(_history, found), key=lambda history: (history.setting.sparsity, history.run.config.seed))


def _history(run: Run) -> LossHistory:
    config = run.config
    assert config.sparsity is not None
    assert config.clip is not None
    lowest, rise = _lowest_and_rise(run.metrics["train_loss"])
    return LossHistory(
        run,
        Setting(config.sparsity, config.clip),
        lowest,
        rise,
        tuple(map(float, _thin(run.losses["step"]))),
        tuple(map(float, _thin(run.losses["loss"]))),
    )


def _lowest_and_rise(by_epoch: NDArray[np.float64]) -> tuple[float, float]:
    """The lowest mean loss of an epoch, and the highest of a later one less that; NaN where no epoch is finite."""
    if not np.isfinite(by_epoch).any():
        return math.nan, math.nan
    place = int(np.nanargmin(by_epoch))
    lowest = float(by_epoch[place])
    return lowest, float(np.nanmax(by_epoch[place:]) - lowest)


def _thin(values: NDArray[np.float64]) -> NDArray[np.float64]:
    window = max(1, -(-len(values) // _POINTS))
    return np.array([values[i : i + window].mean() for i in range(0, len(values), window)])


def print_histories(found: list[LossHistory], recipe: Preset, command: str) -> PrintedTable:
    """A row for each run; the CSV is the curves: sparsity, clip, seed, step, loss, test_accuracy."""
    origin = provenance_of_runs(history.run for history in found)
    notes = [
        f"{len(found)} of {len(SETTINGS) * recipe.seeds} runs have begun.",
        "Rise: how far the mean loss of a later epoch is above the lowest one; marked where it more than doubled.",
        *protocol(recipe),
        *origin.sentences(command),
    ]
    columns = ["s", "m", "seed", "epochs", "test accuracy", "lowest loss", "rise"]
    title = f"CST, high sparsity and low clip, preset {recipe.name}"
    rows = [_cells(history) for history in found]
    return PrintedTable(title, columns, rows, notes, _records(found), remarks=[origin.stamp()])


def _cells(history: LossHistory) -> list[Cell]:
    result = history.run.result
    return [
        Cell(f"{history.setting.sparsity:.2f}"),
        Cell(f"{history.setting.clip:.2f}"),
        Cell(str(history.run.config.seed)),
        Cell(str(history.epochs)),
        Cell("not done yet", Mood.FAINT) if result is None else Cell(f"{result.test_accuracy:.3f}"),
        Cell(f"{history.lowest:.3f}"),
        Cell(f"{history.rise:.3f}", Mood.BAD if history.rise > history.lowest else Mood.PLAIN),
    ]


def _records(found: list[LossHistory]) -> list[dict[str, object]]:
    return [
        {
            "sparsity": history.setting.sparsity,
            "clip": history.setting.clip,
            "seed": history.run.config.seed,
            "step": f"{step:g}",
            "loss": f"{loss:.5g}",
            "test_accuracy": "" if history.run.result is None else f"{history.run.result.test_accuracy:.4f}",
        }
        for history in found
        for step, loss in zip(history.steps, history.losses, strict=True)
    ]
