"""Mixing of positions: attention, means over positions or units, poolings, and changes of resolution.

Attention at initialisation weighs the positions by a softmax of Gaussian logits, of which queries and keys give the
variance. With K the second moments of the values v, s₂ = Σ_j A_ij², s₁₁ = Σ_j A_ij A_i'j:

    own′ = other + (own − other) s₂        other′ = other + (own − other) s₁₁
    D_v = s₂ D + s₁₁ X,    D_v + X_v = D + X
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hush.diagnose.walk.backward import Edge, scaled
from hush.diagnose.walk.context import Context, UnruledError
from hush.diagnose.walk.noise import blend
from hush.diagnose.walk.population import (
    Population,
    equal_places,
    exchangeable_moments,
    joined_places,
    moments_of_places,
    second_moments,
)
from hush.diagnose.walk.sites import Sites, sites_of_measured

__all__ = ["attention", "averaged", "logits", "max_pool", "mixed", "padded", "pooled", "softmax", "upsampled"]

_SAMPLES = 64


def logits(context: Context, query: Population, key: Population, size: int, output: Tensor) -> Population:
    """q·k over a head of `size` units, less what all keys have in common, which a softmax does not see."""
    q, k = exchangeable_moments(query.values), exchangeable_moments(key.values)
    own, spread = float(q[0, 0]), max(0.0, float(k[0, 0] - k[0, 1]))
    across = max(0.0, min(1.0, float(q[0, 1]) / own)) if own > 0.0 else 0.0
    between = max(0.0, min(1.0, float(q[0, 2] / own * (k[0, 2] - k[0, 3]) / spread))) if own and spread else 0.0
    shape = torch.tensor(
        [
            [1.0, across, between, across * between, across],
            [across, 1.0, across * between, between, across],
            [between, across * between, 1.0, across, across * between],
            [across * between, between, across, 1.0, across * between],
            [across, across, across * between, across * between, 1.0],
        ],
        dtype=torch.float64,
    )
    values = context.draws.gaussian(size * own * spread * shape)
    sites = sites_of_measured(output, -1)
    # What reaches queries and keys through the softmax is found where the values are mixed.
    node = context.record.new(scaled(query.node, size * float(k[0, 0] - k[0, 1])), scaled(key.node, size * own))
    return Population(values, sites, node, exact=True, layers=query.layers | key.layers)


def softmax(context: Context, x: Population, output: Tensor, causal: bool = False) -> Population:
    """The overlaps of the weights over the last axis; entries at −∞ are positions that are not seen."""
    seen = x.values[0] > -1e4
    count = output.shape[-1]
    share = float(seen.double().mean())
    moments = second_moments(x.values[:, seen] - x.values[:, seen].mean(1, keepdim=True))
    sizes = _sizes(count, causal, share)
    mixing = _overlaps(context, moments, sizes)
    values = torch.full_like(x.values, 1.0 / count)
    node = context.record.new(scaled(x.node, mixing[0]))
    return Population(values, x.sites, node, exact=True, layers=x.layers, mixing=mixing)


def mixed(
    context: Context, weights: Population, v: Population, output: Tensor, like: Sites | None = None
) -> Population:
    """A v, of a softmax A; `like` are the sites of the queries, which differ where heads share their values."""
    if weights.mixing is None:
        raise UnruledError("a product of two values that is no attention")
    own, across, between = weights.mixing
    k = exchangeable_moments(v.values)
    same = k[0, 1] + (k[0, 0] - k[0, 1]) * own
    other = k[0, 1] + (k[0, 0] - k[0, 1]) * across
    inputs = k[0, 3] + (k[0, 2] - k[0, 3]) * between
    both = k[0, 3] + (k[0, 2] - k[0, 3]) * min(between, across)
    moments = moments_of_places(same, other, inputs, both, other)
    values = context.draws.gaussian(moments)
    known = [sites for sites in (v.sites, like) if sites is not None and sites.codes.shape == output.shape]
    if not known:
        raise UnruledError("its values have other positions than its queries")
    sites = known[0]
    to_values = Edge(v.node, ((own, across), (1.0 - own, 1.0 - across)))
    # δ_logit = A (δ·v − its mean): only what differs between positions counts.
    to_weights = scaled(weights.node, max(0.0, float(k[0, 0] - k[0, 1])))
    return Population(
        joined_places(values, len(sites.positions)),
        sites,
        context.record.new(to_values, to_weights),
        v.scale if v.exact else context.total(v),
        gaussian=True,
        layers=v.layers | weights.layers,
    )


def attention(
    context: Context,
    query: Population,
    key: Population,
    value: Population,
    output: Tensor,
    *,
    scale: float | None,
    causal: bool,
    visible: float,
) -> Population:
    """softmax(scale q·k) v over (…, positions, units of a head)."""
    size, count = query.sites.codes.shape[-1], key.sites.codes.shape[-2]
    factor = scale if scale is not None else size**-0.5
    shape = torch.empty((*query.sites.codes.shape[:-1], count), device="meta")
    found = logits(context, query, key, size, shape)
    node = context.record.new(scaled(found.node, factor**2))
    weights = softmax(context, replace(found, values=factor * found.values, node=node), shape, causal)
    if visible < 1.0 and not causal:
        overlaps = _overlaps(context, second_moments(factor * found.values), _sizes(count, False, visible))
        weights = replace(weights, mixing=overlaps)
    return mixed(context, weights, value, output, query.sites)


def averaged(context: Context, x: Population, axes: Sequence[int], output: Tensor, total: bool) -> Population:
    """The mean, or the sum, over axes that hold positions, or units, or both."""
    dims = x.sites.codes.dim()
    axes = [axis % dims for axis in axes]
    if 0 in axes:
        raise UnruledError("it takes a mean over the batch")
    kinds = [x.sites.varies(axis) for axis in axes]
    units, positions = any(unit for unit, _ in kinds), any(position for _, position in kinds)
    count = math.prod(x.sites.codes.shape[axis] for axis in axes)
    codes = x.sites.codes.amin(axes, keepdim=True).reshape(output.shape)
    values, edge = x.values, scaled(x.node, 1.0)
    if positions:
        p = x.positions
        mean = values.mean(1, keepdim=True)
        k = second_moments(values - mean)
        one = k[0, 0] / p + (1.0 - 1.0 / p) * k[0, 1]
        two = k[0, 2] / p + (1.0 - 1.0 / p) * k[0, 3]
        shape = torch.tensor([[1, 1, 0, 0, 1], [1, 1, 0, 0, 1], [0, 0, 1, 1, 0], [0, 0, 1, 1, 0], [1, 1, 0, 0, 1]])
        values = mean + context.draws.gaussian(torch.where(shape.bool(), one, two))
        values = joined_places(values, 1)
        edge = Edge(x.node, ((1.0 / p, 0.0), (1.0 - 1.0 / p, 0.0)))
        count_units = count // p if units else 1
    else:
        count_units = count
    if units:
        values = values.mean(1, keepdim=True).expand(-1, values.shape[1])
        (dd, dx), (xd, xx) = edge.matrix
        n = float(count_units)
        edge = Edge(x.node, ((dd / n, dx / n), (xd / n, xx / n)))
    if total:
        values = values * count
        (dd, dx), (xd, xx) = edge.matrix
        edge = Edge(x.node, ((dd * count**2, dx * count**2), (xd * count**2, xx * count**2)))
    scale = context.total(x)
    node = context.record.new(edge)
    return Population(values, Sites(codes, x.sites.base), node, scale, exact=units, layers=x.layers)


def pooled(context: Context, x: Population, window: int, output: Tensor) -> Population:
    """A mean over windows of neighbours, which have in common what the places beside each other show."""
    x = context.with_units_along(x, 1)
    mean = x.values.mean(1, keepdim=True)
    k = exchangeable_moments(x.values - mean)
    own, far, other, both, near = k[0, 0], k[0, 1], k[0, 2], k[0, 3], k[0, 4]
    # How much nearer a neighbour is than any other position; the same holds between two inputs.
    close = (near - far) / (own - far) if float(own) > float(far) else torch.ones_like(own)
    share = 1.0 / window + (1.0 - 1.0 / window) * close
    moments = moments_of_places(
        far + (own - far) * share, far, both + (other - both) * share, both, far + 0.5 * (near - far)
    )
    values = mean + context.draws.gaussian(moments)
    node = context.record.new(scaled(x.node, 1.0 / window))
    sites = sites_of_measured(output, 1)
    return Population(joined_places(values, len(sites.positions)), sites, node, x.scale, exact=x.exact, layers=x.layers)


def max_pool(context: Context, x: Population, window: int, output: Tensor) -> Population:
    """The largest of a window whose ranks are Gaussian, with the correlation of places beside each other."""
    x = context.with_units_along(x, 1)
    values, draws = x.values, x.values.shape[1]
    ranks = values.argsort(1).argsort(1)
    normal = torch.special.ndtri((ranks.double() + 0.5) / draws)
    k = exchangeable_moments(normal).clamp(0.0, 1.0)
    near = float(k[0, 4])
    # What a window has in common, and what that has in common with other windows.
    shared = (k / near).clamp(max=1.0).fill_diagonal_(1.0) if near > 0.0 else torch.eye(5, dtype=torch.float64)
    common = context.draws.gaussian(shared)
    ordered = values.sort(1).values
    best = values.new_full(values.shape, -torch.inf)
    for _ in range(window):
        other = near**0.5 * common + (1.0 - near) ** 0.5 * context.draws.normal(*values.shape)
        place = (torch.special.ndtr(other) * draws).long().clamp(0, draws - 1)
        best = torch.maximum(best, ordered.gather(1, place))
    sites = sites_of_measured(output, 1)
    node = context.record.new(scaled(x.node, 1.0))
    return Population(
        joined_places(equal_places(best), len(sites.positions)), sites, node, blend((1.0, x.scale)), layers=x.layers
    )


def upsampled(context: Context, x: Population, output: Tensor) -> Population:
    """Every position repeated: the place beside is as often the same as another."""
    x = context.with_units_along(x, 1)
    values = x.values.clone()
    repeated = context.draws.uniform(values.shape[1]) < 0.5
    values[4] = torch.where(repeated, values[0], values[4])
    node = context.record.new(scaled(x.node, 1.0))
    return Population(values, sites_of_measured(output, 1), node, x.scale, exact=x.exact, layers=x.layers)


def padded(context: Context, x: Population, output: Tensor, zeros: bool) -> Population:
    """More positions: those of the other side again, or zeros."""
    axes = [axis for axis in range(1, output.dim()) if x.sites.varies(axis)[0]]
    values, grown = x.values, output.numel() / x.sites.codes.numel()
    sites = sites_of_measured(output, axes[0] if axes else 1)
    if zeros:
        one, two = (context.draws.uniform(values.shape[1]) * grown < 1.0 for _ in range(2))
        values = values * torch.stack([one, two, one, two, one])
    node = context.record.new(scaled(x.node, 1.0))
    return Population(values, sites, node, x.scale, exact=x.exact, layers=x.layers)


def _sizes(count: int, causal: bool, share: float) -> list[int]:
    """How many positions a softmax sees: all, a share of them, or 1 … count."""
    if not causal and share < 1.0 and abs(share - 0.5 * (1.0 + 1.0 / count)) < 0.02 + 1.0 / count:
        causal = True
    if causal:
        return (
            sorted({max(1, round((n + 0.5) * count / 16)) for n in range(16)})
            if count > 16
            else list(range(1, count + 1))
        )
    return [max(1, round(count * share))]


def _overlaps(context: Context, moments: Tensor, sizes: list[int]) -> tuple[float, float, float]:
    """Σ A_ij², Σ A_ij A_i'j and the same between two inputs, averaged over draws of Gaussian logits."""
    root = torch.linalg.eigh(moments)
    factor = root.eigenvectors * root.eigenvalues.clamp(min=0.0).sqrt()
    sums = torch.zeros(3, dtype=torch.float64)
    for rank, size in enumerate(sizes):
        drawn = torch.einsum("pq,qsn->psn", factor, context.draws.normal(5, _SAMPLES, size))
        weights = drawn.softmax(-1)
        found = torch.stack([(weights[0] * weights[n]).sum(-1).mean() for n in (0, 1, 2)])
        # Of two positions that see different numbers of others, the one that sees more decides how much they share.
        larger = (2.0 * rank + 1.0) / len(sizes)
        sums += found * torch.tensor([1.0, larger, 1.0], dtype=torch.float64)
    own, across, between = (sums / len(sizes)).tolist()
    return own, across, between
