"""A chain that begins nearly linear in what differs between its inputs, so that it still tells them apart at the end.

Drawn on the Edge of Chaos, a deep sparse chain loses its inputs twice. In the first layers inputs differ much, each has
its own active units, and what a linear reader could tell of their classes is gone within ten layers. Behind them all
inputs share their active units, N(1 − s) of them, the chain is a product of as many random matrices of that size, and
all but a few directions vanish in it. Neither is needed for q, the sparsity or the gain to be what the design says:

1. the first layer is scaled down, and its bias drawn for the rest of q*, so that inputs differ in only a share of the
   variance: they have the same active units from the start;
2. in each hidden layer the block of weights between units that are active for most inputs, W[A′, A], becomes the
   orthogonal matrix nearest to it, of the same norm: no direction vanishes;
3. the bias takes back what that does to the mean input, and the output layer's is set so that the mean input gives 0.

In a convolution the units are channels, means are over positions too, and of the block W[A′, A, :, :] only the centre
tap is left, the orthogonal matrix nearest to what was drawn there, with the norm of the whole block: each position
begins by passing its own differences on. All other weights stay as they were drawn.

A white start makes more of the few active units there are: they read the leading principal components of the inputs,
each with the same variance, and none of them begins at the clip, where it would pass nothing on.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hush.nn.linear_chain import ChainLayer, chain_of
from hush.nn.quiet_run import quietly
from hush.theory import Design

__all__ = ["LinearStart", "linear_start_"]

_MOST = 0.5  # a unit counts as active if it is so, with a slope, for more than this share of the inputs
_FEWEST = 16  # inputs
# The share of the variance between inputs that is left in the last layer of a white start. Chains of 20 convolutions in
# which it stayed the same or grew learnt less at the same rates, and so did those in which it fell to a thousandth.
_FALL = 0.015
_IN_THE_SLOPE = 0.5  # of the way from the threshold to the clip: where a white start puts units that would be beyond
_RANK = 1e-6  # principal components of less than this share of the largest variance are rounding


@dataclass(frozen=True)
class LinearStart:
    """What was done.

    Attributes:
        share: of q* in which inputs differ behind the first layer, as asked for.
        active: of each hidden layer, how many units (channels) are active for most inputs (and positions).
        spread: of each hidden layer, the share of the pre-activations' second moment in which inputs differ.
    """

    share: float
    active: tuple[int, ...]
    spread: tuple[float, ...]

    def __str__(self) -> str:
        low, high = min(self.active), max(self.active)
        return (
            f"{len(self.active)} layers begin nearly linear: {low} to {high} units are active for most inputs, which "
            f"differ in {self.spread[0]:.1g} of the variance of the first layer and {self.spread[-1]:.1g} of the last."
        )


@torch.no_grad()
def linear_start_(
    model: nn.Sequential,
    design: Design,
    inputs: Tensor,
    *,
    share: float = 1e-3,
    even: bool = False,
    white: bool = False,
    generator: torch.Generator | None = None,
) -> LinearStart:
    """Change a chain that `hush.init_` has drawn, in place, so that it begins nearly linear on inputs like these.

    It is for deep chains, together with `hush.center_gradients`: the differences between inputs, small as they begin,
    are what the weights learn from, and grow as they do.

    Arguments:
        model: an nn.Sequential of Linears with biases and activations in turn, such as `hush.nn.mlp`; or of
            convolutions and activations with a linear head behind their mean over positions, such as `hush.nn.cnn`.
        inputs: a batch of some hundred inputs like those it will be trained on.
        share: of q* in which inputs differ behind the first layer.
        even: give every layer as many active units as its design says on average, by its biases. Drawn, their number
            is a matter of chance in each layer, and the layer that has fewest bounds what reaches the head: with 48
            channels and 85 % zeros some layer of 20 has 2 instead of 7.
        white: begin evenly, and let the active units of the first layer read the leading principal components of the
            inputs (of a convolution: of the channels at a position), turned at random and of equal variance. Units that
            would begin at the clip begin halfway to it, so that all that are not zero pass differences on; q is lower
            by that. The variance between inputs falls to 0.015 of it along the chain, so the head needs a rate of some
            hundred times that of the layers.
        generator: where the first layer's biases come from, and how components are turned.

    Raises:
        ValueError: if the model is no such chain, or the inputs are too few, or do not differ.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share < 1.0:
        raise ValueError(f"share is a share of the variance between 0 and 1, got {share!r}.")
    chain = chain_of(model)
    if len(inputs) < _FEWEST:
        raise ValueError(
            f"a mean and active units are measured on the inputs: give at least {_FEWEST}, got {len(inputs)}."
        )
    active: list[int] = []
    spread: list[float] = []
    highest = _highest_mean(design) if white else math.inf
    fall = _FALL ** (1.0 / max(1, len(chain.layers) - 1))
    with quietly(model):
        x = inputs
        for module in chain.before:
            x = module(x)
        h = _draw_first(chain.layers[0], x, design.q_star, share, generator)
        if even or white:
            h = _make_even(chain.layers[0], x, design.q_star, highest)
        if white:
            _read_components(
                chain.layers[0], x, _mostly_active(chain.activations[0], h), share * design.q_star, generator
            )
            h = chain.layers[0](x)
        for i, phi in enumerate(chain.activations):
            most, rows = _mostly_active(phi, h), _rows(h)
            active.append(int(most.sum()))
            spread.append(float((rows - rows.mean(0)).square().sum() / rows.square().sum()))
            x = phi(h)
            if i + 1 < len(chain.layers):
                layer = chain.layers[i + 1]
                h = _make_even(layer, x, design.q_star, highest) if even or white else layer(x)
                varied = share * design.q_star * fall ** (i + 1) if white else None
                _make_orthogonal(layer, x, most, _mostly_active(chain.activations[i + 1], h), varied)
                h = layer(x)
        for module in chain.before_head:
            x = module(x)
        chain.head.bias.sub_(chain.head(x).mean(0))
    return LinearStart(share, tuple(active), tuple(spread))


def _rows(x: Tensor) -> Tensor:
    """(batch and positions, units)."""
    return x if x.dim() == 2 else x.movedim(1, -1).flatten(0, -2)


def _without_bias(layer: ChainLayer, x: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(x, layer.weight)
    return layer._conv_forward(x, layer.weight, None)  # type: ignore[no-any-return]


def _of_common(weight: Tensor) -> Tensor:
    """The matrix by which a layer takes an input that is the same at all positions: Σ over taps of W."""
    return weight if weight.dim() == 2 else weight.flatten(2).sum(2)


def _draw_first(layer: ChainLayer, x: Tensor, q: float, share: float, generator: torch.Generator | None) -> Tensor:
    """h = √c W(x − x̄) + b with b ~ N(0, (1 − share) q), c such that its first part has the variance share · q."""
    mean = _rows(x).mean(0)
    centred = x - mean.reshape(-1, *[1] * (x.dim() - 2))
    varied, whole = (float(_without_bias(layer, y).square().mean()) for y in (centred, x))
    # Equal inputs differ from their mean by rounding.
    if not (math.isfinite(varied) and varied > 1e-10 * whole):
        raise ValueError(f"the inputs differ by a variance of {varied:g} behind the first layer; they must differ.")
    assert layer.bias is not None
    layer.weight *= math.sqrt(share * q / varied)
    layer.bias.normal_(0.0, math.sqrt((1.0 - share) * q), generator=generator)
    layer.bias.sub_(_of_common(layer.weight) @ mean)
    return layer(x)  # type: ignore[no-any-return]


def _highest_mean(design: Design) -> float:
    """The size of a unit's mean at which it lies in the middle of the slope, between threshold and clip."""
    return math.inf if design.clip is None else design.threshold + _IN_THE_SLOPE * design.clip


def _make_even(layer: ChainLayer, x: Tensor, q: float, highest: float = math.inf) -> Tensor:
    """Move each unit's bias so that the units' means are the quantiles of N(0, q − v), in the order they were drawn in.

    v is the variance between inputs. So the share of zeros and q are the design's in every layer, not only on average.
    Means beyond `highest`, of either sign, become it.
    """
    assert layer.bias is not None
    h = layer(x)
    rows = _rows(h)
    means, varied = rows.mean(0), float(rows.var(0, correction=0).mean())
    ranks = means.argsort().argsort().to(means.dtype)
    normal = torch.special.ndtri(((ranks + 0.5) / len(ranks)).double()).to(means.dtype)
    layer.bias.add_((math.sqrt(max(q - varied, 0.0)) * normal).clamp(-highest, highest) - means)
    return layer(x)  # type: ignore[no-any-return]


def _mostly_active(phi: nn.Module, h: Tensor) -> Tensor:
    """Which units are active with a slope, neither zero nor at the clip, for most inputs."""
    with torch.enable_grad():
        at = h.detach().requires_grad_()
        (slope,) = torch.autograd.grad(phi(at + 0.0).sum(), at)  # a copy, for those that work in place
    return _rows((slope > 0.5).to(torch.float32)).mean(0) > _MOST


def _read_components(
    layer: ChainLayer, x: Tensor, most: Tensor, varied: float, generator: torch.Generator | None
) -> None:
    """Active units read the leading principal components of x, whitened and turned at random; their means stay.

    Random directions of images, whose variance lies in a few components, would mostly carry those.
    """
    rows, units = _rows(x), most.nonzero()[:, 0]
    centred = (rows - rows.mean(0)).double()
    variances, components = torch.linalg.eigh(centred.T @ centred / len(centred))  # in rising order
    count = min(len(units), int((variances > _RANK * variances[-1]).sum()))
    if count == 0:
        return
    white = (components[:, -count:] / variances[-count:].sqrt()).T
    drawn = torch.zeros(len(units), len(units), dtype=layer.weight.dtype).normal_(generator=generator)
    turn = torch.linalg.qr(drawn.double())[0][:, :count] * math.sqrt(len(units) / count)
    block = torch.zeros_like(layer.weight[units])
    block[_centre(block)] = math.sqrt(varied) * (turn.to(white.device) @ white).to(block.dtype)
    _exchange(layer, x, units, torch.arange(layer.weight.shape[1], device=units.device), block)


def _make_orthogonal(
    layer: ChainLayer, x: Tensor, most: Tensor, most_after: Tensor, varied: float | None = None
) -> None:
    """The nearest orthogonal block between active units, at the centre of a kernel; the mean of the output stays.

    Arguments:
        varied: the variance between inputs that the block is to give; None keeps its norm.
    """
    units, columns = most_after.nonzero()[:, 0], most.nonzero()[:, 0]
    block = layer.weight[units[:, None], columns]
    if block.numel() == 0:
        return
    left, _, right = torch.linalg.svd(block[_centre(block)], full_matrices=False)
    orthogonal = torch.zeros_like(block)
    orthogonal[_centre(block)] = left @ right
    if varied is None:
        orthogonal *= block.norm() / orthogonal.norm()
    else:
        given = (_rows(x)[:, columns] @ (left @ right).T).var(0, correction=0).mean()
        orthogonal *= math.sqrt(varied) / given.sqrt().clamp_min(torch.finfo(given.dtype).tiny)
    _exchange(layer, x, units, columns, orthogonal)


def _centre(block: Tensor) -> tuple[Any, ...]:
    """Where the middle tap of a kernel lies; of a Linear's weight everywhere."""
    return (..., *[size // 2 for size in block.shape[2:]])


def _exchange(layer: ChainLayer, x: Tensor, units: Tensor, columns: Tensor, block: Tensor) -> None:
    """Put a block in the place of another; the bias takes back what that does to the mean input."""
    assert layer.bias is not None
    old = layer.weight[units[:, None], columns]
    layer.bias[units] += _of_common(old - block) @ _rows(x).mean(0)[columns]
    layer.weight[units[:, None], columns] = block
