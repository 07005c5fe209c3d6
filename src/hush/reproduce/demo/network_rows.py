"""What one network of the demo came to, over its seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from hush.train import Run
from hush.train.tables import by_layer

__all__ = ["NetworkRow", "gradients_before_training", "row_of"]


@dataclass(frozen=True)
class NetworkRow:
    """One network: what was said before training, and what came of it, seed by seed.

    Attributes:
        predicted: the verdict of the design; the same for all seeds.
        diagnosed: the verdict on the weights of the first seed, before training.
        went_as_predicted: None for a run that ended before that could be seen.
        outcomes: each a sentence.
        came_apart: whether each diverged or stayed at chance.
        layer_zeros: (lowest, highest) share of zeros of a layer on the test set, of each seed.
        gradient_growth: log10 of the gradient norm at its largest layer over that at the last, before the first step.
    """

    name: str
    predicted: str
    predicted_trains: bool
    diagnosed: str
    went_as_predicted: tuple[bool | None, ...]
    outcomes: tuple[str, ...]
    came_apart: tuple[bool, ...]
    test_accuracies: tuple[float, ...]
    zeros: tuple[float, ...]
    layer_zeros: tuple[tuple[float, float], ...]
    gradient_growth: tuple[float, ...]
    layers: int
    seconds: float

    @property
    def test_accuracy(self) -> float:
        """The mean over the seeds."""
        return fmean(self.test_accuracies)

    @property
    def mean_zeros(self) -> float:
        """The mean over layers and seeds."""
        return fmean(self.zeros)

    @property
    def lowest_layer(self) -> float:
        """The share of zeros in the layer that has fewest, of all seeds."""
        return min(low for low, _ in self.layer_zeros)

    @property
    def highest_layer(self) -> float:
        """The share of zeros in the layer that has most, of all seeds."""
        return max(high for _, high in self.layer_zeros)


def row_of(name: str, runs: Sequence[Run], diagnosed: str) -> NetworkRow:
    """The row of finished runs that differ in their seeds only."""
    results = [run.result for run in runs if run.result is not None]
    if not results or len(results) != len(runs):
        raise ValueError(f"{name} needs finished runs, got {len(results)} of {len(runs)}.")
    return NetworkRow(
        name=name,
        predicted=results[0].predicted,
        predicted_trains=results[0].predicted_trains,
        diagnosed=diagnosed,
        went_as_predicted=tuple(result.prediction_held for result in results),
        outcomes=tuple(str(result) for result in results),
        came_apart=tuple(result.outcome in ("diverged", "failed") for result in results),
        test_accuracies=tuple(result.test_accuracy for result in results),
        zeros=tuple(result.sparsity for result in results),
        layer_zeros=tuple((min(result.layer_sparsity), max(result.layer_sparsity)) for result in results),
        gradient_growth=tuple(_growth(run) for run in runs),
        layers=len(results[0].layer_sparsity),
        seconds=sum(result.seconds for result in results),
    )


def gradients_before_training(run: Run) -> list[float]:
    """|∂L/∂h| of every layer at the first step; empty where it was not recorded."""
    steps, norms = by_layer(run.layers, "gradient_norm")
    return [float(norm) for norm in norms[0]] if steps.size and steps[0] == 0 else []


def _growth(run: Run) -> float:
    norms = np.asarray(gradients_before_training(run))
    if not norms.size or not norms[-1] > 0.0:
        return math.nan
    return math.log10(float(np.nanmax(norms)) / float(norms[-1]))
