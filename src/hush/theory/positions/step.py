"""What a step over positions must answer, and what a list of steps predicts.

A network is a list of steps. Each maps a field to the next one (`forward`), and the squared gradient's field backwards
(`backward`, given the field that its forward read). `run_steps` does both and returns one row for each step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hush.theory.positions.field import Field

__all__ = ["GainNoise", "Preactivation", "Step", "StepPrediction", "run_steps"]


@dataclass(frozen=True)
class Preactivation:
    """What an activation inside a step reads.

    Attributes:
        q: its variance, averaged over positions.
        q_low, q_high: the lowest and highest over positions (borders).
        sparsity: the share of zeros behind the activation, averaged over positions.
        deviation: the relative standard deviation of the measured q over networks of the width asked for.
    """

    q: float
    q_low: float
    q_high: float
    sparsity: float
    deviation: float


class GainNoise(NamedTuple):
    """The noise of a squared gradient's gain at finite width.

    Attributes:
        fresh: the relative variance that this step draws for itself.
        common: the relative deviation that it shares with its neighbours: a norm divides by a stream that all read.
    """

    fresh: float
    common: float = 0.0


class Step(Protocol):
    """One step of a network over positions."""

    @property
    def mixes_channels(self) -> bool:
        """Whether a random matrix in it makes its output's channels independent of its input's."""
        ...

    def forward(self, field: Field, width: int | None = None) -> Field:
        """The field behind the step; with `width` its noise at so many channels too."""
        ...

    def backward(self, gradient: Field, field: Field) -> Field:
        """The squared gradient in front of the step, from that behind it and the field that forward read."""
        ...

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        """What `width` channels give the gain of the squared gradient."""
        ...

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        """What the activations inside the step read, in the order of the forward pass."""
        ...


@dataclass(frozen=True)
class StepPrediction:
    """What one step of a list does.

    Attributes:
        name: the step's class.
        variance: of the field behind the step, averaged over positions; `profile` at every position.
        deviation: the relative standard deviation of that average over networks of the width asked for.
        position_correlation: averaged over pairs of positions behind the step.
        input_correlation: of two inputs at the same position, None for one input.
        preactivations: what the activations inside the step read.
        gain_log10: log10 of the factor by which the step changes the summed squared gradient, backwards; None where no
            gradient was given.
        gradient_log10: log10 of the summed squared gradient in front of this step, over that at the end of the list.
        gradient_deviation: its standard deviation over networks, in decades.
        gradient_correlation: between positions in front of the step.
    """

    name: str
    variance: float
    profile: tuple[float, ...]
    deviation: float
    position_correlation: float
    input_correlation: float | None
    preactivations: tuple[Preactivation, ...]
    gain_log10: float | None = None
    gradient_log10: float | None = None
    gradient_deviation: float = 0.0
    gradient_correlation: float | None = None


def run_steps(
    steps: Sequence[Step], field: Field, gradient: Field | None = None, *, width: int | None = None
) -> list[StepPrediction]:
    """One prediction for each step, from the first to the last.

    Arguments:
        field: what the first step reads.
        gradient: the squared gradient behind the last step (`Head.gradient`, or `Field.uniform` of its shape); without
            it only the forward pass is predicted.
        width: the number of channels, for deviations; None means infinitely many.
    """
    if width is not None and width < 2:
        raise ValueError(f"width must be at least 2, got {width}.")
    read = [field]
    for step in steps:
        read.append(step.forward(read[-1], width))
    gains: list[tuple[float | None, float | None, float, float | None]] = [(None, None, 0.0, None)] * len(steps)
    if gradient is not None:
        if gradient.shape != read[-1].shape:
            raise ValueError(
                f"the gradient behind the last step must have its shape {read[-1].shape}, got {gradient.shape}."
            )
        fresh, common, end = 0.0, 0.0, gradient.total
        for i in reversed(range(len(steps))):
            field = read[i].first()
            before = steps[i].backward(gradient, field)
            if width is not None:
                noise = steps[i].gain_noise(gradient, field, width)
                fresh, common = fresh + noise.fresh, common + noise.common
            gain = _log10(before.total) - _log10(gradient.total)
            deviation = math.sqrt(fresh + common**2) / math.log(10.0)
            gradient = before
            gains[i] = gain, _log10(before.total) - _log10(end), deviation, before.position_correlation()
    return [
        StepPrediction(
            type(step).__name__,
            after.variance,
            tuple(after.profile[0].tolist()),
            math.sqrt(after.sampling(width)),
            after.position_correlation(),
            after.input_correlation(),
            step.preactivations(before, width),
            *gain,
        )
        for step, before, after, gain in zip(steps, read, read[1:], gains, strict=False)
    ]


def _log10(value: float) -> float:
    return math.log10(value) if value > 0.0 else -math.inf
