"""From a tensor to draws: which of its entries stand at the five places of each draw.

Draw m is unit m mod N; its positions and inputs are chosen at random, once for every number of positions, so that a
draw of a stream, of an embedding of positions and of a norm's weights means the same unit at the same position.
"""

from functools import lru_cache

import torch
from torch import Tensor

from hush.diagnose.walk.population import DRAWS, joined_places
from hush.diagnose.walk.sites import Sites

__all__ = ["pick", "pick_measured", "pick_units"]


def pick(value: Tensor, sites: Sites) -> Tensor:
    """(places, draws) of `value`, a tensor that can be expanded to the shape of the codes."""
    codes = sites.codes
    flat = value.expand(codes.shape).reshape(-1)
    return joined_places(flat[_entries(sites)].detach(), len(sites.positions))


def pick_measured(value: Tensor, sites: Sites) -> Tensor:
    """The same of a tensor that was measured, scaled to its own second moment, which a sample would miss."""
    drawn = pick(value.to(torch.float64), sites)
    mean, sample = value.to(torch.float64).square().mean(), drawn[0].square().mean()
    if not (float(sample) > 0.0 and bool(torch.isfinite(mean))):
        return drawn
    return drawn * (mean / sample).sqrt()


def pick_units(vector: Tensor) -> Tensor:
    """(draws,) of a vector with an entry for each unit, such as a bias."""
    flat = vector.detach().to(torch.float64).reshape(-1)
    return flat[torch.arange(DRAWS) % len(flat)]


def _entries(sites: Sites) -> Tensor:
    codes = sites.codes.reshape(-1)
    order = torch.argsort(codes, stable=True)
    found, counts = torch.unique_consecutive(codes[order], return_counts=True)
    starts = torch.cumsum(counts, 0) - counts
    units, positions = sites.units, sites.positions
    unit = units[torch.arange(DRAWS) % len(units)]
    entries = []
    first, second, beside, one, two = _choices(len(positions))
    for position, chosen in ((first, one), (second, one), (first, two), (second, two), (beside, one)):
        rank = torch.searchsorted(found, positions[position] * sites.base + unit).clamp(max=len(found) - 1)
        entries.append(order[starts[rank] + chosen % counts[rank]])
    return torch.stack(entries)


@lru_cache(maxsize=256)
def _choices(positions: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Positions i, j and the one beside i, and the numbers of two inputs, of every draw."""
    generator = torch.Generator().manual_seed(positions)
    first = torch.randint(positions, (DRAWS,), generator=generator)
    second = (first + 1 + torch.randint(max(1, positions - 1), (DRAWS,), generator=generator)) % positions
    beside = torch.where(first + 1 < positions, first + 1, (first - 1).clamp(min=0))
    one = torch.randint(2**20, (DRAWS,), generator=generator)
    return first, second, beside, one, one + 1
