"""From a tensor to draws: which of its entries stand at the five places of each draw.

Draw m is unit m mod N; its positions and inputs are chosen at random, once for every number of positions, so that a
draw of a stream, of an embedding of positions and of a norm's weights means the same unit at the same position.
"""

from functools import lru_cache

import torch
from torch import Tensor

from hush.diagnose.walk.population import (
    DRAWS,
    joined_places,
    moments_of_places,
    second_moments,
    triangular_root,
)
from hush.diagnose.walk.sites import Sites

__all__ = ["measured_moments", "pick", "pick_measured", "pick_units"]


def pick(value: Tensor, sites: Sites) -> Tensor:
    """(places, draws) of `value`, a tensor that can be expanded to the shape of the codes."""
    codes = sites.codes
    flat = value.expand(codes.shape).reshape(-1)
    return joined_places(flat[_entries(sites)].detach(), len(sites.positions))


def pick_measured(value: Tensor, sites: Sites, unit_axis: int) -> Tensor:
    """The same of a tensor that was measured, with the second moments of the whole tensor, which a sample misses."""
    wide = value.to(torch.float64)
    drawn = pick(wide, sites)
    wanted, found = measured_moments(wide, unit_axis), second_moments(drawn)
    if not (float(found[0, 0]) > 0.0 and bool(torch.isfinite(wanted).all())):
        return drawn
    if len(sites.positions) == 1:
        pair = torch.tensor([0, 2])
        there, here = (triangular_root(m[pair][:, pair]) for m in (wanted, found))
        if not bool((here.diagonal() > 0.0).all()):
            return drawn * (wanted[0, 0] / found[0, 0]).sqrt()
        recoloured: Tensor = there @ torch.linalg.solve_triangular(here, drawn[pair], upper=False)
        return recoloured[[0, 0, 1, 1, 0]]
    here = triangular_root(found)
    if not bool((here.diagonal() > 1e-6 * here[0, 0]).all()):
        return drawn * (wanted[0, 0] / found[0, 0]).sqrt()
    moved: Tensor = triangular_root(wanted) @ torch.linalg.solve_triangular(here, drawn, upper=False)
    return moved


def measured_moments(value: Tensor, unit_axis: int) -> Tensor:
    """E[v v′] between the five places, over all units, positions and pairs of inputs of a tensor, batch first."""
    x = value.movedim(unit_axis, -1)
    x = x.reshape(x.shape[0], -1, x.shape[-1])  # (inputs, positions, units)
    b, p, n = x.shape
    own = x.square().mean()
    everything = x.sum((0, 1)).square().sum() / n
    by_input, by_position = x.sum(1).square().sum() / n, x.sum(0).square().sum() / n
    total = own * b * p
    far = (by_input - total) / (b * p * (p - 1)) if p > 1 else own
    other = (by_position - total) / (b * (b - 1) * p) if b > 1 else own
    both = (everything - by_input - by_position + total) / (b * (b - 1) * p * (p - 1)) if b > 1 and p > 1 else other
    beside = (x[:, 1:] * x[:, :-1]).mean() if p > 1 else own
    return moments_of_places(own, far, other, both, beside)


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
