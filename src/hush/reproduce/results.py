"""A table of ours beside the paper's, read from run directories and nothing else."""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hush.report.run_origin import RunOrigin, origin_of_run
from hush.reproduce.agreement import (
    ACCURACY_TOLERANCE,
    HELD,
    SPARSITY_TOLERANCE,
    PrintedValue,
    RunEnd,
    Verdict,
    expected_outcome,
    judge_row,
    near,
    printed_values,
)
from hush.reproduce.experiments import Experiment, TableRow
from hush.reproduce.paper import Outcome
from hush.reproduce.presets import Preset, left_open
from hush.reproduce.provenance import Provenance, protocol, provenance_of_runs
from hush.train.result import Result, Run, load_run

__all__ = ["MeanOfRuns", "ResultRow", "ResultTable", "read_results"]


@dataclass(frozen=True)
class MeanOfRuns:
    """A mean over so many runs, their standard deviation (of the sample; NaN for one), and the paper's."""

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

    def gap(self) -> str:
        """Ours less the paper's, with its sign."""
        # Adding 0 makes a rounded −0 a 0.
        return f"{round(self.mean - self.paper_mean, 2) + 0.0:+.2f}".replace("-", "−") if self.count else "–"


@dataclass(frozen=True)
class ResultRow:
    """A row: what was asked for (`wanted` runs, one for each seed), what there is, and whether it agrees."""

    row: TableRow
    wanted: int
    runs: tuple[RunEnd, ...]
    unfinished: int
    accuracy: MeanOfRuns
    sparsity: MeanOfRuns
    verdict: Verdict
    epochs: tuple[int, ...]
    origins: tuple[RunOrigin, ...]

    @property
    def status(self) -> str:
        """Done, or what is missing."""
        if not self.wanted:
            return "not asked for"
        if len(self.runs) == self.wanted:
            return f"{self.wanted} of {self.wanted} seeds"
        begun = f", {self.unfinished} begun" if self.unfinished else ""
        return f"not run yet{begun}" if not self.runs else f"{len(self.runs)} of {self.wanted} seeds{begun}"


@dataclass(frozen=True)
class ResultTable:
    """One table, with everything its footer says.

    Attributes:
        drawn: the same rows as the paper draws and trains them, cut short, where they were asked for too.
    """

    name: str
    part: str
    recipe: Preset
    rows: tuple[ResultRow, ...]
    origin: Provenance
    drawn: "ResultTable | None" = None

    @property
    def agreeing(self) -> tuple[int, int]:
        """(rows that agree, rows on which there is a verdict)."""
        verdicts = [row.verdict.agrees for row in self.rows if row.verdict.agrees is not None]
        return sum(verdicts), len(verdicts)

    def sentences(self) -> list[str]:
        """The footer, sentence by sentence."""
        ran = [row for row in self.rows if row.runs]
        runs = sum(len(row.runs) for row in ran)
        size = (
            f"{len(ran)} of the paper's {len(self.rows)} rows were run, {runs} {'run' if runs == 1 else 'runs'} in all."
        )
        if not self.recipe.judged:
            return [f"{size} The preset {self.recipe.name} says nothing of the paper.", *protocol(self.recipe)]
        return [size, *self._agreement(ran), *self._as_drawn(), *protocol(self.recipe)]

    def _as_drawn(self) -> list[str]:
        """What became of the networks that begin as the paper draws them; nothing where none were asked for."""
        if self.drawn is None:
            return []
        ran = [row for row in self.drawn.rows if row.runs]
        said = [f"As drawn (preset {self.drawn.recipe.name}): {self.drawn._agreement(ran)[0]}"] if ran else []
        failing = [row for row in ran if expected_outcome(row.row.paper, self.part) is Outcome.FAILED]
        if failing:
            apart = sum(row.verdict.outcome == "came apart" for row in failing)
            said.append(f"Of {len(failing)} rows that fail in the paper {apart} come apart as they are drawn.")
        said += [f"As drawn, {sentence[0].lower()}{sentence[1:]}" for sentence in self.drawn._disagreements(ran)]
        said.append(f"What differs from the paper's protocol there: {' '.join(self.drawn.recipe.differences)}")
        return [*said, f"As drawn: {self.drawn.origin.stamp()[0].lower()}{self.drawn.origin.stamp()[1:]}"]

    def _agreement(self, ran: list[ResultRow]) -> list[str]:
        right, judged = self.agreeing
        if self.recipe.cut_short:
            said = [
                f"{right} of {judged} rows hold or come apart as the paper's train or fail; runs this short say "
                f"nothing of accuracies."
            ]
        else:
            said = [f"{right} of {judged} rows with a verdict train or fail as the paper's do (✓)."]
            trained = [row for row in ran if expected_outcome(row.row.paper, self.part) is Outcome.TRAINED]
            reached = sum(row.accuracy.mean >= row.accuracy.paper_mean - ACCURACY_TOLERANCE for row in trained)
            said.append(
                f"Of {len(trained)} rows that train in the paper {reached} come within {ACCURACY_TOLERANCE:g} of its "
                f"accuracy, or above."
            )
            said += _lost_zeros([row for row in ran if row.verdict.outcome == "trained"])
        for words, rows in self._without_verdict(ran).items():
            numbers = ", ".join(str(row.row.number) for row in rows)
            said.append(f"{'Row' if len(rows) == 1 else 'Rows'} {numbers}: no verdict; {words}.")
        return said + self._disagreements(ran)

    def _disagreements(self, ran: list[ResultRow]) -> list[str]:
        return [
            f"Row {row.row.number} ({row.row.name}) disagrees: {row.verdict.reason}."
            for row in ran
            if row.verdict.agrees is False
        ]

    def _without_verdict(self, ran: list[ResultRow]) -> dict[str, list[ResultRow]]:
        """The rows on which nothing can be said, by the reason why."""
        found: dict[str, list[ResultRow]] = {}
        for row in ran:
            if row.verdict.agrees is not None:
                continue
            paper = expected_outcome(row.row.paper, self.part)
            if paper is Outcome.MIXED:
                words = "in the paper some runs train and some fail, which few runs cannot contradict"
            elif paper is Outcome.SECOND_FAILURE_MODE:
                words = "the paper's second failure mode neither trains nor fails"
            else:
                words = "ours left chance and did not come as far as the paper's"
            found.setdefault(words, []).append(row)
        return found

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
                    "accuracy": [run.accuracy for run in row.runs],
                    "sparsity": [run.sparsity for run in row.runs],
                    "epochs": list(row.epochs),
                    "paper_accuracy": row.accuracy.paper_mean,
                    "paper_sparsity": row.sparsity.paper_mean,
                    "outcome": row.verdict.outcome,
                    "agrees": row.verdict.agrees,
                    "reason": row.verdict.reason,
                }
                for row in self.rows
            ],
            "differences": list(self.recipe.differences),
            "left_open": list(left_open(self.recipe.fields)),
            "provenance": self.origin.to_dict(),
            **({} if self.drawn is None else {"as_drawn": self.drawn.to_dict()}),
        }


def _lost_zeros(trained: list[ResultRow]) -> list[str]:
    """Which rows trained at the cost of what they were to show; nothing where none did."""
    lost = [row.row for row in trained if not abs(row.sparsity.mean - row.row.paper.sparsity) <= HELD]
    if not lost:
        return []
    numbers = ", ".join(str(row.number) for row in lost)
    return [f"{'Row' if len(lost) == 1 else 'Rows'} {numbers}: trained, but zeros are more than {HELD:g} from s."]


def read_results(experiment: Experiment, root: str | Path) -> ResultTable:
    """What the run directories under `root` say of an experiment.

    Raises:
        ValueError: if a file of a finished run is damaged.
    """
    rows, finished = [], list[Run]()
    for row in experiment.rows:
        own, unfinished = list[Run](), 0
        for config in row.configs:
            directory = Path(root) / config.name
            if (directory / "result.json").is_file():
                own.append(load_run(directory, config))
            else:
                unfinished += (directory / "metrics.csv").is_file()
        rows.append(_read_row(experiment, row, own, unfinished))
        finished += own
    return ResultTable(experiment.name, experiment.part, experiment.preset, tuple(rows), provenance_of_runs(finished))


def _read_row(experiment: Experiment, row: TableRow, own: list[Run], unfinished: int) -> ResultRow:
    recipe, part = experiment.preset, experiment.part
    accuracy, sparsity = printed_values(row.paper, part)
    ends = tuple(map(_end_of_run, own))
    verdict = judge_row(row.paper, part, list(ends), recipe)
    if not row.configs:
        verdict = Verdict(None, "not asked for", "not asked for")
    elif not recipe.judged:
        verdict = Verdict(None, "not judged", f"the preset {recipe.name} says nothing of the paper")
    return ResultRow(
        row=row,
        wanted=len(row.configs),
        runs=ends,
        unfinished=unfinished,
        accuracy=_mean([end.accuracy for end in ends], accuracy, ACCURACY_TOLERANCE),
        sparsity=_mean([end.sparsity for end in ends], sparsity, SPARSITY_TOLERANCE),
        verdict=verdict,
        epochs=tuple(_result(run).epochs for run in own),
        origins=tuple(origin_of_run(run.directory) for run in own),
    )


def _end_of_run(run: Run) -> RunEnd:
    result = _result(run)
    best = max([result.test_accuracy, *map(float, run.metrics["validation_accuracy"])])
    loss = math.nan if result.test_loss is None else result.test_loss
    return RunEnd(result.test_accuracy, result.sparsity, best, loss)


def _result(run: Run) -> Result:
    assert run.result is not None
    return run.result


def _mean(values: list[float], paper: PrintedValue, tolerance: float) -> MeanOfRuns:
    mean = statistics.fmean(values) if values else math.nan
    std = statistics.stdev(values) if len(values) > 1 else math.nan
    return MeanOfRuns(mean, std, len(values), paper.mean, paper.std, bool(values) and near(mean, paper, tolerance))
