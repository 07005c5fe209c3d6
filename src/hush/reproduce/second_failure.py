"""The second failure mode: high sparsity with a low clip learns at first and comes apart later (paper, appendix G).

The paper draws the loss curves of five runs each of CST with s = 0.85, m = 0.81 and with s = 0.9, m = 0.76. It does not
say of which depth; the appendix explains what section 4 saw at 100 layers, so that is the depth of the preset `paper`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hush.reproduce.grid import Cell, Grid
from hush.reproduce.presets import Preset, preset
from hush.reproduce.provenance import protocol, provenance
from hush.reproduce.sweep import Swept, run_sweep
from hush.train.config import TrainConfig
from hush.train.result import Result, Run, load_run

__all__ = ["SETTINGS", "Curve", "curves", "second_failure_configs", "second_failure_grid", "second_failure_mode"]

# (sparsity, clip) of the two plots, both of CST
SETTINGS = ((0.85, 0.81), (0.9, 0.76))
# Points of a curve in the CSV; each is the mean over as many recorded losses as it takes.
_POINTS = 500


@dataclass(frozen=True)
class Curve:
    """One run: how it ended, how low its loss got over an epoch, and how far it rose again afterwards."""

    sparsity: float
    clip: float
    seed: int
    epochs: int
    result: Result | None
    lowest: float
    rise: float
    steps: tuple[float, ...]
    losses: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        values = {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in asdict(self).items()}
        return values | {"result": None if self.result is None else json.loads(self.result.to_json())}


def second_failure_configs(recipe: Preset) -> list[TrainConfig]:
    """Both settings, seed by seed."""
    first = [TrainConfig(activation="cst", sparsity=s, clip=m, **recipe.fields) for s, m in SETTINGS]
    return [config.with_seed(seed) for seed in range(recipe.seeds) for config in first]


def second_failure_mode(
    preset_name: str = "quick",
    *,
    seeds: int | None = None,
    given: Mapping[str, Any] | None = None,
    root: str | Path = "runs",
    show: bool = False,
    **sweep: Any,
) -> tuple[list[Curve], Preset, Swept]:
    """Train what is missing and read the loss curves; arguments as for `reproduce_table`."""
    recipe = preset(preset_name, "second", seeds).with_fields(given or {})
    configs = second_failure_configs(recipe)
    swept = Swept() if show else run_sweep(configs, root, **sweep)
    return curves(configs, root), recipe, swept


def curves(configs: list[TrainConfig], root: str | Path) -> list[Curve]:
    """The curves of the runs that have begun, by setting and seed."""
    found = [load_run(Path(root) / c.name) for c in configs if (Path(root) / c.name / "losses.csv").is_file()]
    return sorted(map(_curve, found), key=lambda curve: (curve.sparsity, curve.seed))


def _curve(run: Run) -> Curve:
    config = run.config
    assert config.sparsity is not None
    assert config.clip is not None
    by_epoch = run.metrics["train_loss"]
    lowest = int(np.nanargmin(by_epoch)) if len(by_epoch) else 0
    after = by_epoch[lowest:]
    steps, losses = _thin(run.losses["step"]), _thin(run.losses["loss"])
    return Curve(
        sparsity=config.sparsity,
        clip=config.clip,
        seed=config.seed,
        epochs=len(by_epoch),
        result=run.result,
        lowest=float(by_epoch[lowest]) if len(by_epoch) else math.nan,
        rise=float(np.nanmax(after) - by_epoch[lowest]) if len(by_epoch) else math.nan,
        steps=tuple(map(float, steps)),
        losses=tuple(map(float, losses)),
    )


def _thin(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    window = max(1, -(-len(values) // _POINTS))
    return np.array([values[i : i + window].mean() for i in range(0, len(values), window)])


def second_failure_grid(found: list[Curve], recipe: Preset, command: str) -> Grid:
    """A row for each run; the CSV is the curves: sparsity, clip, seed, step, loss, test_accuracy."""
    rows = [
        [
            Cell(f"{c.sparsity:.2f}"),
            Cell(f"{c.clip:.2f}"),
            Cell(str(c.seed)),
            Cell(str(c.epochs)),
            Cell(f"{c.result.test_accuracy:.3f}") if c.result else Cell("not done yet", "faint"),
            Cell(f"{c.lowest:.3f}"),
            Cell(f"{c.rise:.3f}", "bad" if c.rise > c.lowest else ""),
        ]
        for c in found
    ]
    notes = [
        f"{len(found)} of {len(SETTINGS) * recipe.seeds} runs have begun.",
        "Rise: how far the mean loss of a later epoch is above the lowest one; marked where it more than doubled.",
        *protocol(recipe),
        *provenance(c.result for c in found if c.result is not None).sentences(command),
    ]
    records: list[dict[str, object]] = [
        {
            "sparsity": c.sparsity,
            "clip": c.clip,
            "seed": c.seed,
            "step": f"{step:g}",
            "loss": f"{loss:.5g}",
            "test_accuracy": "" if c.result is None else f"{c.result.test_accuracy:.4f}",
        }
        for c in found
        for step, loss in zip(c.steps, c.losses, strict=True)
    ]
    columns = ["s", "m", "seed", "epochs", "test accuracy", "lowest loss", "rise"]
    return Grid(f"CST, high sparsity and low clip, preset {recipe.name}", columns, rows, notes, records)
