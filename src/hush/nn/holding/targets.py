"""Which layer is held at which share of zeros, and how that share rises to its goal."""

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hush.nn.structure import listed

__all__ = ["Ramp", "ramp", "targets_by_name"]


@dataclass(frozen=True)
class Ramp:
    """A straight line from `start` to the goal over the first `steps` optimizer steps; the goal from then on."""

    start: float
    steps: int

    def __post_init__(self) -> None:
        _check_share("the start of a ramp", self.start)
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"a ramp takes a whole number of steps, at least 1, got {self.steps!r}.")

    def at(self, step: int, goal: float) -> float:
        """The share to hold after so many steps."""
        done = min(1.0, step / self.steps)
        return self.start + done * (goal - self.start)


def ramp(start: float, *, steps: int) -> Ramp:
    """Begin at the sparsity `start` and close to the goal over so many optimizer steps: `schedule=ramp(0.5, steps=…)`.

    The first thresholds are the model's own: where they give another share than `start`, the first steps go there.
    """
    return Ramp(start, steps)


def targets_by_name(sparsity: float | Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """The goal of each layer that has one: the one number, or that of the first pattern which matches its name.

    Raises:
        ValueError: if a share is not between 0 and 1, or a pattern matches none of the names.
    """
    patterns = dict(sparsity) if isinstance(sparsity, Mapping) else {"*": sparsity}
    if not patterns:
        raise ValueError('there is no sparsity to hold: give a number, or patterns such as {"blocks.*": 0.95}.')
    for pattern, share in patterns.items():
        _check_share(f"the sparsity of {pattern!r}" if isinstance(sparsity, Mapping) else "the sparsity", share)
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"{pattern!r} matches no activation of the model; it has {listed(names, 6)}.")
    found = {name: next((p for p in patterns if fnmatch.fnmatchcase(name, p)), None) for name in names}
    return {name: float(patterns[pattern]) for name, pattern in found.items() if pattern is not None}


def _check_share(what: str, share: float) -> None:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share < 1.0 or math.isnan(share):
        raise ValueError(f"{what} is a share of zeros between 0 and 1, got {share!r}.")
