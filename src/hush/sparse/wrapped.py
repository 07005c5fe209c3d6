"""Whether DDP has already wrapped a model.

DDP lays its gradient buckets out as the weights lie when it wraps them. A layout that changes afterwards gives wrong
gradients (seen with torch 2.13: a step differs by 1e-2), with a warning about speed only; so `accelerate` and
`decelerate` refuse.
"""

from __future__ import annotations

import gc

import torch.distributed
from torch import nn

__all__ = ["check_not_wrapped"]


def check_not_wrapped(model: nn.Module, verb: str) -> None:
    """Raises ValueError if a DistributedDataParallel holds any of the model's parameters."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    from torch.nn.parallel import DistributedDataParallel

    own = {id(p) for p in model.parameters()}
    for found in gc.get_objects():
        if isinstance(found, DistributedDataParallel) and any(id(p) in own for p in found.parameters()):
            raise ValueError(
                f"The model is wrapped in DistributedDataParallel already, which has laid its gradients out as the "
                f"weights lie; call {verb} before wrapping it."
            )
