"""The network under test as a user of plain torch would write it: this is what the peers run.

The network itself is made of hush's own modules. Their activations bring a backward of hush's own, which keeps less and
runs as one kernel, and which no exporter knows: peers must not have the one, and cannot have the other. So each
activation is replaced by the `torch.clamp` that a user would write. There is no second definition of it: its bounds are
read off the module, and it is compared with the module before it is used.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from hush.nn.activations import Thresholded

__all__ = ["Clamp", "in_plain_torch"]


class Clamp(nn.Module):
    """x ↦ clamp(x − shift, low, high), in torch's own operations."""

    def __init__(self, shift: float, low: float, high: float) -> None:
        super().__init__()
        self.shift, self.low, self.high = shift, low, high

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x - self.shift, self.low, self.high)


def in_plain_torch(model: nn.Sequential) -> nn.Sequential:
    """A copy of the model in which every activation is a clamp.

    Raises:
        ValueError: if an activation is not one.
    """
    return nn.Sequential(*(_plain(m) for m in model))


def _plain(module: nn.Module) -> nn.Module:
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        return copy.deepcopy(module)
    if not any(True for _ in module.children()):
        return _clamp_of(module)
    twin = copy.deepcopy(module)  # a block: all but its activations is plain torch
    for parent in twin.modules():
        for name, child in parent.named_children():
            if isinstance(child, Thresholded):
                setattr(parent, name, _clamp_of(child))
    return twin


@torch.no_grad()
def _clamp_of(activation: nn.Module) -> Clamp:
    shift = getattr(activation, "threshold", None)
    if not isinstance(shift, float):
        raise ValueError(f"{activation} has no threshold: peers can only be given an activation that torch.clamp is.")
    low, high = activation(torch.tensor([-1e30, 1e30], dtype=torch.float64)).tolist()
    clamp = Clamp(shift, low, high)
    x = torch.linspace(shift - 10.0, shift + high + 10.0, 10_001)
    if not torch.equal(activation(x), clamp(x)):
        raise ValueError(
            f"{activation} is not clamp(x − {shift:g}, {low:g}, {high:g}): peers would run another network."
        )
    return clamp
