"""Which position and which unit every entry of a tensor is: code = position × units + unit, the batch left out.

Views, permutations, slices and concatenations are applied to the codes as they are to the tensor itself, so it is known
at every layer whether what it sums over are units, positions (the token mixing of an MLP-Mixer) or both (a flattened
feature map).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Sites", "sites_of_layer", "sites_of_measured"]


@dataclass(frozen=True)
class Sites:
    """The codes of one tensor.

    Attributes:
        codes: of the tensor's shape; entries that differ in the batch only share a code.
        base: how many units the codes count with: unit = code mod base, position = code div base.
    """

    codes: Tensor
    base: int

    @cached_property
    def units(self) -> Tensor:
        """The units that are there, in ascending order."""
        found: Tensor = torch.unique(self.codes % self.base)
        return found

    @cached_property
    def positions(self) -> Tensor:
        found: Tensor = torch.unique(self.codes.div(self.base, rounding_mode="floor"))
        return found

    def varies(self, axis: int) -> tuple[bool, bool]:
        """(whether the unit, whether the position) changes along `axis`."""
        if self.codes.shape[axis] < 2:
            return False, False
        line = self.codes.movedim(axis, -1).reshape(-1, self.codes.shape[axis])[0]
        unit, position = line % self.base, line.div(self.base, rounding_mode="floor")
        return bool((unit != unit[0]).any()), bool((position != position[0]).any())

    def swapped(self) -> "Sites":
        """The same tensor with units taken for positions and positions for units."""
        unit = self.codes % self.base
        position = self.codes.div(self.base, rounding_mode="floor")
        _, position = torch.unique(position, return_inverse=True)
        base = int(position.max()) + 1
        return Sites(unit * base + position, base)


def sites_of_measured(value: Tensor, unit_axis: int) -> Sites:
    """The batch on the first axis, units on `unit_axis`, every other axis positions."""
    shape = value.shape
    axis = unit_axis % value.dim()
    others = [n for n in range(1, value.dim()) if n != axis]
    position = torch.zeros(shape, dtype=torch.int64)
    for other in others:
        view = [1] * value.dim()
        view[other] = shape[other]
        position = position * shape[other] + torch.arange(shape[other]).view(view)
    view = [1] * value.dim()
    view[axis] = shape[axis]
    return Sites(position * shape[axis] + torch.arange(shape[axis]).view(view), shape[axis])


def sites_of_layer(read: Sites, axis: int, output: Tensor) -> Sites:
    """What a layer that sums over `axis` of what it reads gives out: fresh units there, a position for every sum."""
    smallest = read.codes.amin(axis % read.codes.dim())
    _, position = torch.unique(smallest, return_inverse=True)
    units = output.shape[axis]
    view = [1] * output.dim()
    view[axis] = units
    codes = position.unsqueeze(axis) * units + torch.arange(units).view(view)
    return Sites(codes.expand(output.shape), units)
