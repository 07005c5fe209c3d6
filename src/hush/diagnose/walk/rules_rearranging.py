"""Views, permutations, slices, parts, concatenations: entries move, and none changes.

The function is applied to the codes. Parts of the units (query, key, value of one product; the two halves of a gated
layer) are independent of each other: every part but the first takes the draws in an order of its own.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from hush.diagnose.walk.backward import Edge, scaled
from hush.diagnose.walk.context import Context, UnruledError
from hush.diagnose.walk.noise import blend
from hush.diagnose.walk.picking import pick
from hush.diagnose.walk.population import DRAWS, Population, joined_places
from hush.diagnose.walk.sites import Sites

__all__ = ["concatenated", "moved", "rearranged"]


def rearranged(
    context: Context, x: Population, function: Callable[..., object], args: object, kwargs: dict[str, object]
) -> list[Population]:
    """One population for each tensor that the function gives out; `args` hold the population where the tensor was."""
    placed = tree_map(lambda a: x.sites.codes if isinstance(a, Population) else a, (args, kwargs))
    found = function(*placed[0], **placed[1])
    parts = [found] if isinstance(found, Tensor) else list(found)  # type: ignore[call-overload]
    return [moved(context, x, codes) for codes in parts]


def moved(context: Context, x: Population, codes: Tensor) -> Population:
    sites = Sites(codes, x.sites.base)
    values, first = x.values, int(sites.units[0])
    if len(sites.units) < x.units and first != int(x.sites.units[0]):
        values = values[:, context.draws.order(first)]
    positions = len(sites.positions)
    matrix = ((1.0, 0.0), (0.0, 0.0 if positions == 1 and x.positions > 1 else 1.0))
    edge = Edge(x.node, matrix, keeps=values is x.values)
    return Population(
        joined_places(values, positions),
        sites,
        context.record.new(edge),
        x.scale,
        x.exact and len(sites.units) == x.units,
        x.gaussian,
        None if x.measured is None or x.measured.shape != codes.shape else x.measured,
        x.layers,
        x.mixing,
    )


def concatenated(context: Context, parts: Sequence[Population | Tensor], axis: int) -> Population:
    """Side by side along units (a dense block) or along positions (a class token in front of patches)."""
    # What is empty joins nothing: a cache of keys before its first use.
    parts = [part for part in parts if isinstance(part, Population) or part.numel() > 0]
    known = [part for part in parts if isinstance(part, Population)]
    lead = max(known, key=lambda part: part.sites.codes.numel())
    axis %= lead.sites.codes.dim()
    along_units = lead.sites.varies(axis)[0] or (lead.sites.codes.shape[axis] == 1 and axis == 1)
    whole = [_population(context, part, lead, axis) for part in parts]
    if along_units:
        whole = [context.with_units_along(part, axis) for part in whole]
    sizes = torch.tensor([float(part.sites.codes.shape[axis]) for part in whole])
    sites = _side_by_side([part.sites for part in whole], axis, along_units)
    values = torch.empty_like(lead.values)
    shares = (sizes / sizes.sum()).double()
    if along_units:
        # Draw m belongs to the part whose units it falls among, as for a bias or a norm's weights.
        chosen = torch.searchsorted(torch.cumsum(sizes, 0), (torch.arange(DRAWS) % int(sizes.sum())) + 0.5)
        choices = [chosen] * 5
    else:
        one, two = (torch.searchsorted(shares.cumsum(0), context.draws.uniform(DRAWS)) for _ in range(2))
        choices = [one, two, one, two, one]
    for place, choice in enumerate(choices):
        for number, part in enumerate(whole):
            values[place] = torch.where(choice == number, part.values[place], values[place])
    total = sum(float(share) * part.variance for share, part in zip(shares, whole, strict=True))
    weights = [
        float(share) * part.variance / total if total > 0.0 else 0.0 for share, part in zip(shares, whole, strict=True)
    ]
    deviations = [context.total(part) for part in whole]
    layers = 0
    for part in whole:
        layers |= part.layers
    edges = [scaled(part.node, float(share)) for share, part in zip(shares, whole, strict=True) if part.node >= 0]
    scale = blend(*zip(weights, deviations, strict=True))
    return Population(values, sites, context.record.new(*edges), scale, exact=True, layers=layers)


def _population(context: Context, part: Population | Tensor, lead: Population, axis: int) -> Population:
    """A tensor that depends on no input (a class token) as draws, laid out as the rest."""
    if isinstance(part, Population):
        return part
    if not part.is_floating_point() or part.dim() != lead.sites.codes.dim():
        raise UnruledError("what it joins has another number of axes")
    if any(part.shape[n] != lead.sites.codes.shape[n] for n in range(part.dim()) if n != axis):
        raise UnruledError("what it joins has another shape")
    take = torch.arange(part.shape[axis]) % lead.sites.codes.shape[axis]
    sites = Sites(lead.sites.codes.index_select(axis, take), lead.sites.base)
    values = pick(part.detach().double(), sites)
    return Population(values, sites, context.record.new(), context.nothing(), exact=True)


def _side_by_side(parts: Sequence[Sites], axis: int, along_units: bool) -> Sites:
    """New codes: the units, or the positions, of each part after those of the parts before it."""
    offset, units, positions = 0, [], []
    for part in parts:
        _, unit = torch.unique(part.codes % part.base, return_inverse=True)
        _, position = torch.unique(part.codes.div(part.base, rounding_mode="floor"), return_inverse=True)
        if along_units:
            unit = unit + offset
            offset = int(unit.max()) + 1
        else:
            position = position + offset
            offset = int(position.max()) + 1
        units.append(unit)
        positions.append(position)
    unit, position = torch.cat(units, axis), torch.cat(positions, axis)
    base = int(unit.max()) + 1
    return Sites(position * base + unit, base)
