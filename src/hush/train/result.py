"""A run as it lies on disk: what it was asked, what it recorded, what came of it."""

import json
import math
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

from hush.train.config import TrainConfig
from hush.train.machine import Machine
from hush.train.outcome import Outcome
from hush.train.tables import COLUMNS, Table, read_table

__all__ = ["Divergence", "Result", "Run", "check_same", "find_runs", "finished_run", "load_run", "read_config"]


@dataclass(frozen=True)
class Divergence:
    """Where training came apart; `layer` counts from 1, depth + 1 is the head."""

    step: int
    layer: int
    reason: str


@dataclass(frozen=True)
class Result:
    """What a finished run came to, and what was predicted before it began.

    A loss that is no longer finite is None; a network that answers NaN is right where the first class is. What earlier
    versions of hush did not record is None or empty: a table says "not recorded" there.

    Attributes:
        outcome: see `Outcome`.
        started, ended: UTC, of the run itself; a run that was resumed began with its first process.
        why: the reason of the outcome, in a sentence without its full stop.
        notes: what else a reader should know, such as that nothing could be accelerated.
        layer_sparsity: on the test set, of every activation in the order of the network.
        per_byte: whether it learnt a text: accuracy and loss are then those of a byte, and the loss is what counts.
    """

    outcome: Outcome
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
    started: str | None = None
    ended: str | None = None
    machine: Machine | None = None
    why: str = ""
    notes: tuple[str, ...] = ()
    layer_sparsity: tuple[float, ...] = ()
    per_byte: bool = False

    @property
    def prediction_held(self) -> bool | None:
        """Whether it went as predicted; None where the run ended before that could be seen."""
        if self.outcome == Outcome.NOT_YET:
            return None
        return self.predicted_trains == (self.outcome == Outcome.TRAINED)

    @property
    def score(self) -> str:
        """On the test set, in words: the accuracy, or of a text the loss."""
        if not self.per_byte:
            return f"test accuracy {self.test_accuracy:.3f}"
        loss = "not finite" if self.test_loss is None else f"{self.test_loss:.3f} nats per byte"
        return f"test loss {loss}"

    @property
    def when(self) -> str:
        """The day the run ended, or that it was not recorded."""
        return self.ended[:10] if self.ended else "not recorded"

    @property
    def where(self) -> str:
        """The kind of machine, or that it was not recorded."""
        return str(self.machine) if self.machine else "not recorded"

    def to_json(self) -> str:
        values = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Result":
        """The result `to_json` wrote, by this version or an earlier one, which recorded less.

        Raises:
            ValueError, KeyError, TypeError: if the text is not one.
        """
        values = json.loads(text)
        values["outcome"] = Outcome(values["outcome"])
        for name in ("test_accuracy", "sparsity", "seconds"):
            values[name] = math.nan if values[name] is None else float(values[name])
        if values["diverged"] is not None:
            values["diverged"] = Divergence(**values["diverged"])
        if values.get("machine") is not None:
            values["machine"] = Machine(**values["machine"])
        values["notes"] = tuple(values.get("notes", ()))
        values["layer_sparsity"] = tuple(values.get("layer_sparsity", ()))
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values or f.default is MISSING})

    def __str__(self) -> str:
        score = f"{self.score}, sparsity {self.sparsity:.3f}"
        if self.diverged is not None:
            where = f"{self.diverged.reason} at step {self.diverged.step}, layer {self.diverged.layer}"
            return f"diverged: {where}; {score}"
        text = f"{self.outcome}: {score}, {self.epochs} epochs in {self.seconds:.0f} s"
        if self.gave_up:
            return f"{self.outcome} (gave up at chance after {self.epochs} epochs){text.removeprefix(self.outcome)}"
        if self.outcome == Outcome.TRAINED or not self.why:
            return text
        advice = "; more epochs may train it" if self.outcome == Outcome.NOT_YET else ""
        return f"{text}; {self.why}{advice}"


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
    config = read_config(directory)
    file = directory / "result.json"
    try:
        result = Result.from_json(file.read_text(encoding="utf-8")) if file.is_file() else None
        tables: list[Table] = []
        for name in COLUMNS:
            file = directory / f"{name}.csv"
            tables.append(read_table(directory, name))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ValueError(_damaged(file, error)) from error
    if expected is not None:
        check_same(directory, config, expected)
    return Run(directory, config, result, *tables)


def read_config(directory: Path) -> TrainConfig:
    """What the run in `directory` was asked.

    Raises:
        ValueError: if it is no run directory, or the file is damaged.
    """
    file = directory / "config.json"
    if not file.is_file():
        raise ValueError(f"{directory} is no run directory: there is no config.json in it.")
    try:
        return TrainConfig.from_json(file.read_text(encoding="utf-8"))
    except (ValueError, TypeError, OSError) as error:
        raise ValueError(_damaged(file, error)) from error


def finished_run(config: TrainConfig, root: str | Path) -> Run | None:
    """The run of `config` under `root` if it is finished; asking takes neither torch nor the data."""
    path = Path(root) / config.name
    return load_run(path, config) if (path / "result.json").is_file() else None


def _damaged(file: Path, error: Exception) -> str:
    return f"{file} is damaged: {str(error).rstrip('.')}; remove it, and train again to make it anew."


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
