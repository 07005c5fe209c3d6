"""A run as it lies on disk: what it was asked, what it recorded, what came of it."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from hush.train.config import TrainConfig
from hush.train.tables import COLUMNS, Table, read_table

__all__ = ["Divergence", "Result", "Run", "find_runs", "load_run"]


@dataclass(frozen=True)
class Divergence:
    """Where training came apart; `layer` counts from 1, depth + 1 is the head."""

    step: int
    layer: int
    reason: str


@dataclass(frozen=True)
class Result:
    """What a finished run came to, and what was predicted before it began.

    outcome is "trained" (at least half of the test set right), "failed" (less), or "diverged" (no longer finite).
    A loss that is no longer finite is None; a network that answers NaN is right where the first class is.
    """

    outcome: str
    test_accuracy: float
    test_loss: float | None
    sparsity: float
    train_loss: float | None
    epochs: int
    steps: int
    seconds: float
    diverged: Divergence | None
    gave_up: bool
    predicted: str
    predicted_trains: bool
    versions: dict[str, str]

    def to_json(self) -> str:
        values = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Result":
        values = json.loads(text)
        if values["diverged"] is not None:
            values["diverged"] = Divergence(**values["diverged"])
        return cls(**{f.name: values[f.name] for f in fields(cls)})

    def __str__(self) -> str:
        score = f"test accuracy {self.test_accuracy:.3f}, sparsity {self.sparsity:.3f}"
        if self.diverged is not None:
            where = f"{self.diverged.reason} at step {self.diverged.step}, layer {self.diverged.layer}"
            return f"diverged: {where}; {score}"
        ended = f" (gave up at chance after {self.epochs} epochs)" if self.gave_up else ""
        return f"{self.outcome}{ended}: {score}, {self.epochs} epochs in {self.seconds:.0f} s"


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory; `result` is None while the run is not done, and the tables hold what it has got to."""

    directory: Path
    config: TrainConfig
    result: Result | None
    metrics: Table
    losses: Table
    layers: Table


def load_run(path: str | Path, expected: TrainConfig | None = None) -> Run:
    """Read a run directory.

    Arguments:
        expected: what the run must have been trained with, wherever that was: the name does not tell defaults, which
            another version of hush may have changed.

    Raises:
        ValueError: if it is none, or a file in it is damaged, or it is a run of another config.
    """
    directory = Path(path)
    file = directory / "config.json"
    if not file.is_file():
        raise ValueError(f"{directory} is no run directory: there is no config.json in it.")
    try:
        config = TrainConfig.from_json(file.read_text(encoding="utf-8"))
        file = directory / "result.json"
        result = Result.from_json(file.read_text(encoding="utf-8")) if file.is_file() else None
        tables: list[Table] = []
        for name in COLUMNS:
            file = directory / f"{name}.csv"
            tables.append(read_table(directory, name))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ValueError(f"{file} is damaged: {error}; remove it, and train again to make it anew.") from error
    if expected is not None:
        check_same(directory, config, expected)
    return Run(directory, config, result, *tables)


def check_same(directory: Path, config: TrainConfig, expected: TrainConfig) -> None:
    """Raise a ValueError if the run in `directory` is not the expected one."""
    if other := config.difference(expected):
        raise ValueError(f"{directory} holds a run with {other}; move it away to train this one.")


def find_runs(paths: Iterable[str | Path]) -> list[Run]:
    """The runs at these paths: run directories, or directories of them.

    Raises:
        ValueError: if a path holds no run.
    """
    runs: list[Run] = []
    for path in map(Path, paths):
        if (path / "config.json").is_file():
            runs.append(load_run(path))
            continue
        found = [load_run(file.parent) for file in sorted(path.glob("*/config.json"))]
        if not found:
            raise ValueError(f"there is no run at {path}: neither a run directory nor a directory of them.")
        runs += found
    return runs
