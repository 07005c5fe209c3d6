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

All other weights stay as they were drawn.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hush.nn.quiet_run import quietly
from hush.nn.recognise import is_activation
from hush.nn.structure import listed
from hush.theory import Design

__all__ = ["LinearStart", "linear_start_"]

_MOST = 0.5  # a unit counts as active if it is so, with a slope, for more than this share of the inputs
_FEWEST = 16  # inputs


@dataclass(frozen=True)
class LinearStart:
    """What was done.

    Attributes:
        share: of q* in which inputs differ behind the first layer, as asked for.
        active: of each hidden layer, how many units are active for most inputs.
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
    generator: torch.Generator | None = None,
) -> LinearStart:
    """Change a chain that `hush.init_` has drawn, in place, so that it begins nearly linear on inputs like these.

    It is for deep chains, together with `hush.center_gradients`: the differences between inputs, small as they begin,
    are what the weights learn from, and grow as they do.

    Arguments:
        model: an nn.Sequential of Linears with biases and activations in turn, such as `hush.nn.mlp`.
        inputs: a batch of some hundred inputs like those it will be trained on.
        share: of q* in which inputs differ behind the first layer.
        generator: where the first layer's biases come from.

    Raises:
        ValueError: if the model is no such chain, or the inputs are too few, or do not differ.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share < 1.0:
        raise ValueError(f"share is a share of the variance between 0 and 1, got {share!r}.")
    before, linears, activations = _chain(model)
    if len(inputs) < _FEWEST:
        raise ValueError(
            f"a mean and active units are measured on the inputs: give at least {_FEWEST}, got {len(inputs)}."
        )
    active: list[int] = []
    spread: list[float] = []
    with quietly(model):
        x = inputs
        for module in before:
            x = module(x)
        h = _draw_first(linears[0], x, design.q_star, share, generator)
        for phi, linear in zip(activations, linears[1:], strict=True):
            most = _mostly_active(phi, h)
            active.append(int(most.sum()))
            spread.append(float((h - h.mean(0)).square().sum() / h.square().sum()))
            x = phi(h)
            if linear is not linears[-1]:
                _make_orthogonal(linear, x, most, _mostly_active(activations[len(active)], linear(x)))
            h = linear(x)
        linears[-1].bias.sub_(h.mean(0))
    return LinearStart(share, tuple(active), tuple(spread))


def _draw_first(linear: nn.Linear, x: Tensor, q: float, share: float, generator: torch.Generator | None) -> Tensor:
    """h = √c W(x − x̄) + b with b ~ N(0, (1 − share) q), c such that its first part has the variance share · q."""
    mean = x.mean(0)
    varied, whole = (float(nn.functional.linear(y, linear.weight).square().mean()) for y in (x - mean, x))
    # Equal inputs differ from their mean by rounding.
    if not (math.isfinite(varied) and varied > 1e-10 * whole):
        raise ValueError(f"the inputs differ by a variance of {varied:g} behind the first layer; they must differ.")
    linear.weight *= math.sqrt(share * q / varied)
    linear.bias.normal_(0.0, math.sqrt((1.0 - share) * q), generator=generator)
    linear.bias.sub_(linear.weight @ mean)
    return linear(x)  # type: ignore[no-any-return]


def _mostly_active(phi: nn.Module, h: Tensor) -> Tensor:
    """Which units are active with a slope, neither zero nor at the clip, for most inputs."""
    with torch.enable_grad():
        at = h.detach().requires_grad_()
        (slope,) = torch.autograd.grad(phi(at + 0.0).sum(), at)  # a copy, for those that work in place
    return (slope > 0.5).to(torch.float32).mean(0) > _MOST


def _make_orthogonal(linear: nn.Linear, x: Tensor, most: Tensor, most_after: Tensor) -> None:
    """The nearest orthogonal block between active units; the mean of the output stays."""
    rows, columns = most_after.nonzero(), most.nonzero()[:, 0]
    block = linear.weight[rows, columns]
    if block.numel() == 0:
        return
    left, _, right = torch.linalg.svd(block, full_matrices=False)
    orthogonal = left @ right
    orthogonal *= block.norm() / orthogonal.norm()
    linear.bias[rows[:, 0]] += (block - orthogonal) @ x.mean(0)[columns]
    linear.weight[rows, columns] = orthogonal


def _chain(model: nn.Module) -> tuple[list[nn.Module], list[nn.Linear], list[nn.Module]]:
    """What comes before the first Linear, the Linears, and the activations between them."""
    if not isinstance(model, nn.Sequential):
        raise ValueError(
            f"a linear start is for a chain of Linears and activations in an nn.Sequential, got {type(model).__name__}."
        )
    before: list[nn.Module] = []
    linears: list[nn.Linear] = []
    activations: list[nn.Module] = []
    for name, module in model.named_children():
        if isinstance(module, nn.Linear) and len(linears) == len(activations):
            if module.bias is None:
                raise ValueError(f"{name} has no bias, which a linear start needs in every layer.")
            linears.append(module)
        elif is_activation(module) and len(linears) == len(activations) + 1:
            activations.append(module)
        elif not linears:
            before.append(module)
        elif not isinstance(module, nn.Identity | nn.Dropout):
            raise ValueError(
                f"a linear start is for Linears and activations in turn; {name} is a {type(module).__name__} "
                f"in a place where none belongs."
            )
    if len(linears) < 2 or len(linears) != len(activations) + 1:
        kinds = listed([type(m).__name__ for m in model], 6)
        raise ValueError(f"a linear start is for Linears and activations in turn, ending in a Linear, got {kinds}.")
    return before, linears, activations
