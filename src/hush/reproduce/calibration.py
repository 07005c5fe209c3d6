"""Both failure modes against every DNN row of the paper's tables; bounds chosen on one depth are tried on the other.

What a row came to is read off what the paper prints, by a rule that knows nothing of the theory: it *trained* at a mean
accuracy of 0.85 or more. Of those that did not, one whose sparsity is still within 0.02 of its target failed in the
second mode, the others in the first: a network that comes apart loses its zeros. Partial failures, 0.76 ± 0.16, count
as what their mean says.

The rule has two numbers: which odds to explode are too many, and how much of the difference between two inputs must be
left. Each is the middle, in the logarithm, of the widest gap among those that call the fewest rows wrong.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np

from hush.reproduce.paper import TABLES, PaperRow, load_table
from hush.theory import Design, design, separations
from hush.theory.training_rule import KEPT_DIFFERENCE, TRAINABLE_ODDS

__all__ = ["Bounds", "Fate", "Judged", "choose_bounds", "count_right", "fate_in_paper", "judge_tables"]

_TRAINED_FROM = 0.85
_SPARSITY_KEPT = 0.02


class Fate(Enum):
    """What becomes of a network."""

    TRAINS = "trains"
    EXPLODES = "explodes"
    INDISTINGUISHABLE = "indistinguishable"


def fate_in_paper(row: PaperRow) -> Fate:
    """By the printed accuracy and sparsity alone; see the module's docstring."""
    if row.accuracy_mean >= _TRAINED_FROM:
        return Fate.TRAINS
    # Printed to two digits: 0.02 is 0.02, whatever it is in binary.
    kept = abs(row.sparsity_mean - row.sparsity) <= _SPARSITY_KEPT + 1e-9
    return Fate.INDISTINGUISHABLE if kept else Fate.EXPLODES


@dataclass(frozen=True)
class Bounds:
    """The two numbers of the rule.

    Attributes:
        explode: the odds to explode above which a network does not train.
        kept: the (1 − ρ)E[φ′²]L² below which it does not.
    """

    explode: float = TRAINABLE_ODDS
    kept: float = KEPT_DIFFERENCE


@dataclass(frozen=True)
class Judged:
    """A row of the paper beside the design hush makes of its (activation, s, V′), at its width and depth.

    Attributes:
        kept: the median of (1 − ρ)E[φ′²]L² behind the last layer, over networks and pairs of inputs.
    """

    table: str
    row: PaperRow
    design: Design
    kept: float

    @property
    def explode(self) -> float:
        assert self.design.odds is not None
        return self.design.odds.explode

    @property
    def fate(self) -> Fate:
        return fate_in_paper(self.row)

    def called(self, bounds: Bounds) -> Fate:
        """What the rule says with these bounds."""
        if self.explode > bounds.explode:
            return Fate.EXPLODES
        return Fate.INDISTINGUISHABLE if self.kept < bounds.kept else Fate.TRAINS


def judge_tables(seeds: int = 1) -> list[Judged]:
    """Every row of the three tables, designed anew; medians over so many seeds of 4,000 pairs each."""
    return [_judge(table, row, seeds) for table in TABLES for row in load_table(table)]


def _judge(table: str, row: PaperRow, seeds: int) -> Judged:
    slope = None if row.clip is None else row.v_prime
    made = design(row.activation, row.sparsity, v_prime=slope, width=row.width, depth=row.depth)
    ends = [
        separations(made.chain(), row.width, row.depth, q_start=made.input_variance, pairs=4000, seed=seed).at_end
        for seed in range(seeds)
    ]
    apart = math.exp(float(np.mean(np.log(ends))))
    return Judged(table, row, made, apart * made.phi().slope_moment(1, made.q_star) * row.depth**2)


def choose_bounds(judged: Iterable[Judged]) -> Bounds:
    """The bounds that call the fewest of these rows wrong; see the module's docstring."""
    rows = list(judged)
    explode = _middle_of_gap([(j.explode, j.fate is Fate.EXPLODES) for j in rows], above=True)
    calm = [j for j in rows if j.explode <= explode]
    kept = _middle_of_gap([(j.kept, j.fate is not Fate.TRAINS) for j in calm], above=False)
    return Bounds(explode, kept)


def _middle_of_gap(figures: Sequence[tuple[float, bool]], above: bool) -> float:
    """The bound that splits (figure, failed) with the fewest wrong, failures above or below it."""
    # Half of one chain in 4,000 stands for none.
    logs = sorted({math.log(max(value, 1.25e-4)) for value, _ in figures})
    gaps = []
    for low, high in pairwise(logs):
        bound = 0.5 * (low + high)
        wrong = sum(((math.log(max(value, 1.25e-4)) > bound) == above) != failed for value, failed in figures)
        gaps.append((wrong, low - high, bound))
    if not gaps:
        raise ValueError("a bound needs at least two rows with different figures to be chosen on.")
    return math.exp(min(gaps)[2])


def count_right(judged: Iterable[Judged], bounds: Bounds) -> tuple[int, int, int]:
    """(rows of which it is right whether they train, rows of which it is right also how they fail, all rows)."""
    calls = [(j.called(bounds), j.fate) for j in judged]
    trains = sum((said is Fate.TRAINS) == (came is Fate.TRAINS) for said, came in calls)
    return trains, sum(said is came for said, came in calls), len(calls)
