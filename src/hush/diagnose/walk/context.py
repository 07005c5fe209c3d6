"""What the rules share: draws, sources of noise, the record of the backward pass, and how a population is made."""

import numpy as np
import torch
from torch import Tensor

from hush.diagnose.walk.backward import Edge, Record, scaled
from hush.diagnose.walk.noise import Deviation, Sources, blend, variance_of
from hush.diagnose.walk.picking import pick_measured
from hush.diagnose.walk.population import Draws, Population, joined_places
from hush.diagnose.walk.sites import Sites, sites_of_measured

__all__ = ["Context", "UnruledError"]


class UnruledError(Exception):
    """There is no rule for this use of a function."""


class Context:
    """One walk.

    Attributes:
        batch: how many inputs a batch has whose statistics a BatchNorm takes.
    """

    def __init__(self, batch: int) -> None:
        self.draws = Draws()
        self.sources = Sources()
        self.record = Record()
        self.batch = batch

    def total(self, population: Population) -> Deviation:
        """The relative deviation of |v|²/N, the draw of its own units included."""
        sampling = population.sampling
        return blend((1.0, population.scale), (1.0, self.sources.new(sampling))) if sampling else population.scale

    def spread(self, population: Population) -> float:
        """The relative variance of |v|²/N."""
        return variance_of(population.scale) + population.sampling

    def measured(self, value: Tensor, unit_axis: int, *edges: Edge, layers: int = 0) -> Population:
        """A population taken from a tensor as it is; |v|²/N differs from input to input by what is seen."""
        sites = sites_of_measured(value, unit_axis)
        wide = value.detach().to(torch.float64)
        squares = wide.flatten(1).square().mean(1)
        spread = float(squares.var() / squares.mean().square()) if len(squares) > 1 and float(squares.mean()) else 0.0
        values = pick_measured(value.detach(), sites, unit_axis)
        self.draws.anchor(values)
        return Population(
            values,
            sites,
            self.record.new(*edges),
            self.sources.new(spread),
            exact=True,
            measured=value.detach(),
            layers=layers,
        )

    def swapped(self, population: Population) -> Population:
        """Units taken for positions and positions for units, as a layer that mixes positions wants them."""
        sites = population.sites.swapped()
        edge = scaled(population.node, 1.0, 0.0)
        axis = next((n for n in range(1, sites.codes.dim()) if sites.varies(n) == (True, False)), None)
        if population.measured is not None and axis is not None:
            values = pick_measured(population.measured, sites, axis)
        else:
            # Other positions are now other units of before, which are independent: the same draws in another order.
            v, order, again = population.values, self.draws.order(1), self.draws.order(2)
            values = torch.stack([v[0], v[0, order], v[2], v[2, order], v[0, again]])
        return Population(
            joined_places(values, len(sites.positions)),
            sites,
            self.record.new(edge),
            population.scale,
            population.exact,
            population.gaussian,
            population.measured,
            population.layers,
        )

    def with_units_along(self, population: Population, axis: int) -> Population:
        """The population itself, or swapped, so that `axis` of the tensor runs over units."""
        unit, position = population.sites.varies(axis)
        return self.swapped(population) if position and not unit else population

    @staticmethod
    def fresh_sites(output: Tensor, unit_axis: int) -> Sites:
        return sites_of_measured(output, unit_axis)

    @staticmethod
    def nothing() -> Deviation:
        return np.zeros(0)
