"""Weight layers: what a Linear, a convolution or a product with a fixed matrix makes of a population.

    h = W x + b:   h is Gaussian over units with E[h h′] = σ_w² E[x x′] + b b′,   σ_w² = Σ W² / units out,
    D_in = σ_w² D_out, both sums over units and positions

σ_w² is read off the weights. Where zero padding cuts a kernel, the taps that fall outside are left out by the share of
positions at which they do.
"""

import math

import torch
from torch import Tensor

from hush.diagnose.walk.backward import scaled
from hush.diagnose.walk.context import Context, UnruledError
from hush.diagnose.walk.noise import blend
from hush.diagnose.walk.picking import pick_units
from hush.diagnose.walk.population import Population, exchangeable_moments, joined_places, moments_of_places
from hush.diagnose.walk.sites import Sites, sites_of_layer, sites_of_measured

__all__ = ["convolution", "linear", "transposed_convolution"]


def linear(context: Context, x: Population, weight: Tensor, bias: Tensor | None, output: Tensor) -> Population:
    """`weight` is (out, in), and sums over the last axis of x."""
    return _gaussian(context, x, -1, _energy(weight), bias, sites_of_layer(x.sites, -1, output))


def convolution(
    context: Context,
    x: Population,
    weight: Tensor,
    bias: Tensor | None,
    output: Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Population:
    """`weight` is (out, in/groups, *kernel); channels are on axis 1."""
    # (kernel,) how much of the weight lies at each tap, and that times the share of the positions at which the tap is
    # inside, or is inside at both of two positions.
    energy = weight.detach().to(torch.float64).square().sum(1).mean(0)
    at_two = energy
    size = x.sites.codes.shape[2:]
    for axis in range(weight.dim() - 2):
        taps = torch.arange(weight.shape[2 + axis]) * dilation[axis] - padding[axis]
        reached = torch.arange(output.shape[2 + axis])[:, None] * stride[axis] + taps
        inside = ((reached >= 0) & (reached < size[axis])).double().mean(0)
        view = [1] * energy.dim()
        view[axis] = -1
        energy = energy * inside.view(view)
        at_two = at_two * inside.view(view).square()
    sites = sites_of_measured(output, 1)
    variance, between = float(energy.sum()), float(at_two.sum())
    shared = between / variance if variance > 0.0 else 1.0
    return _gaussian(context, x, 1, variance, bias, sites, steps=max(stride, default=1), shared=shared)


def transposed_convolution(
    context: Context, x: Population, weight: Tensor, bias: Tensor | None, output: Tensor, stride: tuple[int, ...]
) -> Population:
    """`weight` is (in, out/groups, *kernel); an output position is reached by one tap in stride."""
    square = weight.detach().to(torch.float64).square().mean()
    groups = output.shape[1] // weight.shape[1]
    variance = float(square) * weight.shape[0] / groups * math.prod(weight.shape[2:]) / math.prod(stride)
    # Two positions meet the same taps once in as many as a stride has steps.
    return _gaussian(context, x, 1, variance, bias, sites_of_measured(output, 1), shared=1.0 / math.prod(stride))


def _gaussian(
    context: Context,
    x: Population,
    axis: int,
    variance: float,
    bias: Tensor | None,
    sites: Sites,
    steps: int = 1,
    shared: float = 1.0,
) -> Population:
    if not math.isfinite(variance):
        raise UnruledError("its weights are not finite")
    read = context.with_units_along(x, axis)
    unit, position = read.sites.varies(axis)
    # A flattened feature map: the layer sums over its positions too.
    values = read.values[[0, 0, 2, 2, 0]] if unit and position else read.values
    moments = exchangeable_moments(values)
    if steps > 1:
        moments = _strided(moments, steps)
    if shared < 1.0:
        moments = moments * _at_borders(shared)
    positions = len(sites.positions)
    offset = None if bias is None else pick_units(bias)
    drawn = joined_places(context.draws.gaussian(variance * moments, offset), positions)
    share = 1.0
    if offset is not None:
        before = float(drawn[0].square().mean())
        drawn = drawn + offset
        after = before + float(offset.square().mean())
        share = before / after if after > 0.0 else 1.0
    across = 0.0 if unit and position else None
    inputs = max(1, len(read.sites.units))
    return Population(
        drawn,
        sites,
        context.record.new(scaled(read.node, variance, across, noise=2.0 / inputs)),
        blend((share, context.total(read))),
        gaussian=True,
        layers=x.layers,
    )


def _energy(weight: Tensor) -> float:
    return float(weight.detach().to(torch.float64).square().sum(1).mean())


def _strided(moments: Tensor, steps: int) -> Tensor:
    """The place beside i is now `steps` away: what it shares with i beyond all others falls off geometrically."""
    moments = moments.clone()
    own, far, near = float(moments[0, 0]), float(moments[0, 1]), float(moments[0, 4])
    share = (near - far) / (own - far) if own > far else 0.0
    moments[0, 4] = moments[4, 0] = far + (own - far) * max(0.0, min(1.0, share)) ** steps
    return moments


def _at_borders(shared: float) -> Tensor:
    """Two positions have fewer taps in common than one has with itself, where a border cuts some off."""
    one, other, between = (torch.tensor(v, dtype=torch.float64) for v in (1.0, shared, 0.5 * (1.0 + shared)))
    return moments_of_places(one, other, one, other, between)
