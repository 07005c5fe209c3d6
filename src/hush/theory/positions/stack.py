"""A list of steps as one step: a ResNet's block, a transformer's layer."""

from collections.abc import Sequence
from dataclasses import dataclass

from hush.theory.positions.branch import through
from hush.theory.positions.field import Field
from hush.theory.positions.step import GainNoise, Preactivation, Step

__all__ = ["Stack", "StackOfSteps"]


class StackOfSteps:
    """One step made of `steps`, which a subclass provides."""

    @property
    def steps(self) -> Sequence[Step]:
        raise NotImplementedError

    @property
    def mixes_channels(self) -> bool:
        return any(step.mixes_channels for step in self.steps)

    def forward(self, field: Field, width: int | None = None) -> Field:
        return through(self.steps, field, width)[-1]

    def backward(self, gradient: Field, field: Field) -> Field:
        for step, read in zip(reversed(self.steps), reversed(through(self.steps, field)[:-1]), strict=True):
            gradient = step.backward(gradient, read)
        return gradient

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        fresh, common = 0.0, 0.0
        for step, read in zip(reversed(self.steps), reversed(through(self.steps, field)[:-1]), strict=True):
            noise = step.gain_noise(gradient, read, width)
            fresh, common = fresh + noise.fresh, common + noise.common
            gradient = step.backward(gradient, read)
        return GainNoise(fresh, common)

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        fields = through(self.steps, field, width)
        return tuple(
            found for step, read in zip(self.steps, fields, strict=False) for found in step.preactivations(read, width)
        )


@dataclass(frozen=True)
class Stack(StackOfSteps):
    """These steps, one after the other, as one."""

    members: Sequence[Step]

    def __post_init__(self) -> None:
        # A list is taken, but a step must be hashable.
        object.__setattr__(self, "members", tuple(self.members))

    @property
    def steps(self) -> Sequence[Step]:
        return self.members
