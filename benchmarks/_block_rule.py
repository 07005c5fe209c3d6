"""Choosing the bounds of the rule on some networks, and counting how often it is right on others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hush.theory.training_rule import BlockBounds, BlockFigures, judge_blocks

# Plain numbers only; every combination is tried. The bound on the gradient at the first block is the chain's convention
# and is not chosen here: wherever a gradient vanished, the inputs had become indistinguishable too.
GRID = {
    "highest_gain_log10": np.arange(1.0, 8.01, 0.25),
    "output_log10": np.arange(0.5, 4.01, 0.25),
    "difference_log10": np.arange(-6.0, -0.99, 0.25),
}
SPARSITY_GRID = np.arange(0.01, 0.201, 0.01)
# Sparsity is held if it is this near the target after training.
HELD = 0.1


@dataclass(frozen=True)
class Judged:
    """A network of the list: its name and half, its figures at initialisation, and what came of it.

    Attributes:
        half_right: the outcome of `hush.train.outcome` is TRAINED: at least half of the test set is right.
        trained: besides, the training loss at the end is below that of guessing. A network that comes apart in its
            first steps may leave random features of which the head still gets half right, at a loss of 10¹² and more.
        trained_with_adamw: the same of a second run with AdamW; None where that was not tried.
        sparsity_after: None where the run diverged.
    """

    name: str
    half: str
    figures: BlockFigures
    outcome: str
    accuracy: float
    half_right: bool
    trained: bool
    trained_with_adamw: bool | None
    sparsity_after: float | None

    @property
    def holds_sparsity(self) -> bool | None:
        """Whether a sparse network that trained is still as sparse as asked; None for all others."""
        target = self.figures.target_sparsity
        if target is None or self.sparsity_after is None or not self.trained:
            return None
        return abs(self.sparsity_after - target) <= HELD


def choose_bounds(networks: Sequence[Judged]) -> BlockBounds:
    """The bounds of the grid that are right most often; of several, the middle one, figure by figure."""
    trained = np.array([network.trained for network in networks])
    keeps = []
    for name, grid in GRID.items():
        values = np.array([getattr(network.figures, name) for network in networks])
        upper = name in ("highest_gain_log10", "output_log10")
        keeps.append(values <= grid[:, None] if upper else values >= grid[:, None])
    gain, output, difference = keeps
    said = gain[:, None, None] & output[:, None] & difference
    said &= np.array([n.figures.first_gain_log10 >= BlockBounds.first_gain_log10 for n in networks])
    right = (said == trained).sum(-1)
    chosen: dict[str, float] = {}
    for axis, (name, grid) in enumerate(GRID.items()):
        # The figures before this one are settled, so that the middles of all belong to one best combination.
        best = np.argwhere(right == right.max())
        places = sorted(set(best[:, axis]))
        place = places[(len(places) - 1) // 2]
        right = np.where(np.indices(right.shape, sparse=True)[axis] == place, right, -1)
        chosen[name] = round(float(grid[place]), 2)
    return replace(BlockBounds(**chosen), sparsity=_choose_sparsity(networks))


def _choose_sparsity(networks: Sequence[Judged]) -> float:
    sparse = [network for network in networks if network.holds_sparsity is not None]
    right = [
        sum(abs(n.figures.sparsity - n.figures.target_sparsity) <= bound is n.holds_sparsity for n in sparse)  # type: ignore[operator]
        for bound in SPARSITY_GRID
    ]
    best = [i for i, count in enumerate(right) if count == max(right)]
    return round(float(SPARSITY_GRID[best[(len(best) - 1) // 2]]), 2)


def misjudged(networks: Sequence[Judged], bounds: BlockBounds) -> list[Judged]:
    """Those of which the rule says what did not come to pass."""
    return [network for network in networks if judge_blocks(network.figures, bounds).trains != network.trained]


def share_right(networks: Sequence[Judged], bounds: BlockBounds) -> float:
    return 1.0 - len(misjudged(networks, bounds)) / len(networks)


def sparsity_right(networks: Sequence[Judged], bounds: BlockBounds) -> tuple[int, int]:
    """(right, all) of the sparse networks that trained: whether "sparsity lost" is what came to pass."""
    sparse = [network for network in networks if network.holds_sparsity is not None]
    right = sum(judge_blocks(n.figures, bounds).sparsity_lost is not n.holds_sparsity for n in sparse)
    return right, len(sparse)


def majority(networks: Sequence[Judged]) -> float:
    """The share that a rule gets right which says the same of all."""
    trains = sum(network.trained for network in networks) / len(networks)
    return max(trains, 1.0 - trains)
