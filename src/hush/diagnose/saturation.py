"""How many units sit on a plateau of φ: active forward, silent backward."""

import torch
from torch import Tensor

from hush.theory import Activation, Relative

__all__ = ["count_saturated"]


def count_saturated(phi: Activation | None, x: Tensor, unit_axis: int) -> Tensor:
    """How many values of x = φ(h) are on a plateau, as a tensor of one number; 0 where φ is not known.

    A clip relative to the layer's own size is another number in each layer, and the one that several units of it share:
    the largest, where it occurs more than once.
    """
    if phi is None or not phi.plateaus:
        return torch.zeros((), dtype=torch.int64, device=x.device)
    if isinstance(phi, Relative):
        sizes = x.abs() if phi.is_odd else x
        top = sizes.amax(unit_axis, keepdim=True)
        there = ((sizes == top) & (top > 0.0)).sum(unit_axis)
        return torch.where(there > 1, there, 0).sum()
    return torch.stack([(x == value).sum() for value in phi.plateaus]).sum()
