"""A table of ours beside the paper's, read from run directories and nothing else."""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hush.reproduce.agreement import ACCURACY_TOLERANCE, SPARSITY_TOLERANCE, Seed, Verdict, judge, near, printed
from hush.reproduce.experiment import Experiment, Row
from hush.reproduce.presets import Preset, left_open
from hush.reproduce.provenance import Provenance, protocol, provenance
from hush.train.result import Result, load_run

__all__ = ["Figure", "ResultRow", "ResultTable", "read_results"]


@dataclass(frozen=True)
class Figure:
    """A mean over so many seeds, their standard deviation (of the sample; NaN for one), and the paper's."""

    mean: float
    std: float
    count: int
    paper_mean: float
    paper_std: float
    near: bool

    def ours(self) -> str:
        if not self.count:
            return "–"
        spread = "" if math.isnan(self.std) else f" ± {self.std:.3f}"
        return f"{self.mean:.3f}{spread} ({self.count})"

    def paper(self, spread: bool = True) -> str:
        return f"{self.paper_mean:.2f}" + (f" ± {self.paper_std:g}" if spread else "")


@dataclass(frozen=True)
class ResultRow:
    """A row: what was asked for (`wanted` seeds), what there is, and whether it agrees."""

    row: Row
    wanted: int
    seeds: tuple[Seed, ...]
    unfinished: int
    accuracy: Figure
    sparsity: Figure
    verdict: Verdict
    epochs: tuple[int, ...]

    @property
    def status(self) -> str:
        """Done, or what is missing."""
        if not self.wanted:
            return "not asked for"
        if len(self.seeds) == self.wanted:
            return f"{self.wanted} of {self.wanted} seeds"
        begun = f", {self.unfinished} begun" if self.unfinished else ""
        return f"not run yet{begun}" if not self.seeds else f"{len(self.seeds)} of {self.wanted} seeds{begun}"


@dataclass(frozen=True)
class ResultTable:
    """One table, with everything its footer says."""

    name: str
    part: str
    recipe: Preset
    rows: tuple[ResultRow, ...]
    origin: Provenance

    @property
    def agreeing(self) -> tuple[int, int]:
        """(rows that agree, rows on which there is a verdict)."""
        verdicts = [row.verdict.agrees for row in self.rows if row.verdict.agrees is not None]
        return sum(verdicts), len(verdicts)

    def sentences(self) -> list[str]:
        """The footer, sentence by sentence."""
        right, judged = self.agreeing
        ran = sum(bool(row.seeds) for row in self.rows)
        said = [f"{right} of {judged} rows agree with the paper; {ran} of its {len(self.rows)} rows were run."]
        if not self.recipe.judged:
            said = [
                f"{ran} of {len(self.rows)} rows were run; the preset {self.recipe.name} says nothing of the paper."
            ]
        said += [
            f"Row {row.row.number} ({row.row.name}) disagrees: {row.verdict.reason}."
            for row in self.rows
            if row.verdict.agrees is False
        ]
        return said + protocol(self.recipe)

    def to_dict(self) -> dict[str, Any]:
        right, judged = self.agreeing
        return {
            "table": self.name,
            "part": self.part,
            "preset": self.recipe.name,
            "agree": right,
            "judged": judged,
            "rows": [
                {
                    "row": row.row.number,
                    "name": row.row.name,
                    "status": row.status,
                    "accuracy": [seed.accuracy for seed in row.seeds],
                    "sparsity": [seed.sparsity for seed in row.seeds],
                    "epochs": list(row.epochs),
                    "paper_accuracy": row.accuracy.paper_mean,
                    "paper_sparsity": row.sparsity.paper_mean,
                    "agrees": row.verdict.agrees,
                    "reason": row.verdict.reason,
                }
                for row in self.rows
            ],
            "differences": list(self.recipe.differences),
            "left_open": list(left_open(self.recipe.fields)),
            "versions": dict(self.origin.versions),
        }


def read_results(experiment: Experiment, root: str | Path) -> ResultTable:
    """What the run directories under `root` say of an experiment.

    Raises:
        ValueError: if a file of a finished run is damaged.
    """
    rows, results = [], []
    for row in experiment.rows:
        seeds, epochs, unfinished = [], [], 0
        for config in row.configs:
            directory = Path(root) / config.name
            if not (directory / "result.json").is_file():
                unfinished += (directory / "metrics.csv").is_file()
                continue
            run = load_run(directory, config)
            assert run.result is not None
            best = max([run.result.test_accuracy, *map(float, run.metrics["validation_accuracy"])])
            seeds.append(Seed(run.result.test_accuracy, run.result.sparsity, best, _loss(run.result)))
            epochs.append(run.result.epochs)
            results.append(run.result)
        rows.append(_row(experiment, row, tuple(seeds), unfinished, tuple(epochs)))
    return ResultTable(experiment.name, experiment.part, experiment.preset, tuple(rows), provenance(results))


def _loss(result: Result) -> float:
    return math.nan if result.test_loss is None else result.test_loss


def _row(
    experiment: Experiment, row: Row, seeds: tuple[Seed, ...], unfinished: int, epochs: tuple[int, ...]
) -> ResultRow:
    recipe, part = experiment.preset, experiment.part
    accuracy, sparsity = printed(row.paper, part)
    verdict = judge(row.paper, part, list(seeds), recipe)
    if not row.configs:
        verdict = Verdict(None, "not asked for")
    elif not recipe.judged:
        verdict = Verdict(None, f"the preset {recipe.name} says nothing of the paper")
    return ResultRow(
        row,
        len(row.configs),
        seeds,
        unfinished,
        _figure([seed.accuracy for seed in seeds], *accuracy, ACCURACY_TOLERANCE),
        _figure([seed.sparsity for seed in seeds], *sparsity, SPARSITY_TOLERANCE),
        verdict,
        epochs,
    )


def _figure(values: list[float], paper: float, spread: float, tolerance: float) -> Figure:
    mean = statistics.fmean(values) if values else math.nan
    std = statistics.stdev(values) if len(values) > 1 else math.nan
    return Figure(mean, std, len(values), paper, spread, bool(values) and near(mean, paper, spread, tolerance))
