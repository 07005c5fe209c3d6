"""How well the units of a chain can tell two inputs apart, layer by layer: the law of 1 − ρ at finite width."""

from dataclasses import dataclass

import numpy as np

from hush.theory._checks import check_size, check_variance
from hush.theory.block.chain import Chain
from hush.theory.chain_run import SAMPLES
from hush.theory.input_correlations import IMAGE_CORRELATIONS, InputCorrelations
from hush.theory.input_norms import IMAGE_NORMS, InputNorms
from hush.theory.separation_run import PAIRS, run_separations
from hush.theory.training_rule import INDISTINGUISHABLE_ODDS, LEVELS, separation_bound

__all__ = ["Separations", "separations"]


@dataclass(frozen=True)
class Separations:
    """1 − ρ of two inputs in networks of this width, at layers 1 … depth; over initialisations and pairs of inputs.

    Attributes:
        quantiles: for each level the quantile of 1 − ρ, layer by layer.
        bounds: for each layer the least 1 − ρ with which a network that ends there tells two inputs apart.
        lost: for each layer the share of pairs below that bound.
    """

    width: int
    depth: int
    quantiles: dict[float, tuple[float, ...]]
    bounds: tuple[float, ...]
    lost: tuple[float, ...]

    @property
    def at_end(self) -> float:
        """The median of 1 − ρ at the last layer."""
        return self.quantiles[0.5][-1]

    @property
    def indistinguishable(self) -> float:
        """The share of pairs that cannot be told apart behind the last layer."""
        return self.lost[-1]

    @property
    def lost_at_depth(self) -> int | None:
        """The first layer at which more pairs are lost than a network may lose; None if it comes to that nowhere."""
        return next((layer for layer, lost in enumerate(self.lost, 1) if lost > INDISTINGUISHABLE_ODDS), None)


def separations(
    chain: Chain,
    width: int,
    depth: int,
    *,
    q_start: float = 1.0,
    q_star: float | None = None,
    norms: InputNorms = IMAGE_NORMS,
    correlations: InputCorrelations = IMAGE_CORRELATIONS,
    pairs: int = PAIRS,
    seed: int = 0,
) -> Separations:
    """Follow pairs of inputs, drawn from `norms` and `correlations`, through networks of this chain.

    The inputs have a mean square of q_start; the bounds of `training_rule` are taken at q_star, q_start unless given.
    """
    check_variance("q_start", q_start)
    check_size(width, depth)
    if not 1 <= pairs <= SAMPLES:
        raise ValueError(f"pairs must lie between 1 and {SAMPLES}, got {pairs}.")
    found = run_separations(chain, width, depth, q_start, norms, correlations, pairs, seed)
    passing = chain.phi.slope_moment(1, q_start if q_star is None else q_star)
    bounds = np.array([separation_bound(passing, layer) for layer in range(1, len(found) + 1)])
    rows = np.quantile(found, LEVELS, axis=1)
    return Separations(
        width,
        len(found),
        {level: tuple(row.tolist()) for level, row in zip(LEVELS, rows, strict=True)},
        tuple(bounds.tolist()),
        tuple((found < bounds[:, None]).mean(1).tolist()),
    )
