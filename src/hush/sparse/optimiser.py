"""The optimiser's update inside the backward.

    SGD        w ← w − lr (g + λ w)
    momentum   m ← μ m + (1 − d) g;  w ← w − lr m           (Nesterov: w − lr (g + μ m))
    AdamW      as torch.optim.AdamW

A sparse step spends much of its time on reading and writing weights, so the gradient of a fused layer is applied while
it is still in registers and never stored: p.grad stays None, and `optimizer.step()`, which skips such parameters,
updates the rest of the model. The hyperparameters are read from the optimizer at each backward (schedulers work), its
state lives in `optimizer.state` (checkpoints work). Every updated parameter's version counter is raised, so that
autograd refuses a second backward through weights that have changed. Not for gradient accumulation or clipping, since
one backward is one step; not across processes, since nobody would average the gradients; and not for a deepcopy of the
model, which trains with plain gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from . import _native

__all__ = ["check_alone", "check_optimizer", "prepare", "raise_versions"]

_SGD, _MOMENTUM, _ADAMW = 2, 3, 4


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Raises ValueError unless the update can be fused."""
    if type(optimizer) not in (torch.optim.SGD, torch.optim.AdamW):
        raise ValueError(
            f"The optimizer is {type(optimizer).__name__}; torch.optim.SGD and torch.optim.AdamW can be fused. "
            "Call accelerate(model) without optimizer= to use any other."
        )
    for group in optimizer.param_groups:
        for option in ("maximize", "amsgrad", "differentiable"):
            if group.get(option):
                raise ValueError(f"The optimizer has {option}=True, which cannot be fused; set it to False.")


def check_alone() -> None:
    """Raises RuntimeError among several processes: the update would come before the gradients are averaged."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise RuntimeError(
            "The optimizer is fused into the backward, which cannot average gradients over processes; "
            "call accelerate(model) without optimizer= for distributed training."
        )


def _address(state: dict[str, Any], name: str, p: Tensor) -> int:
    """The state tensor's memory, laid out as p: one that was made or loaded row-major is turned around once."""
    value = state.get(name)
    if value is None or value.shape != p.shape or value.dtype != p.dtype or value.stride() != p.stride():
        kept = torch.zeros_like(p, memory_format=torch.preserve_format).detach()
        state[name] = kept if value is None else kept.copy_(value)
    return state[name].data_ptr()


Plan = tuple[list[int], list[_native.Optimiser], list[int], list[int]]
_Step = tuple[tuple[Any, ...], int, int]


def _sgd(group: dict[str, Any], state: dict[str, Any], p: Tensor) -> _Step:
    if not group["momentum"]:
        return (_SGD, float(group["lr"]), group["weight_decay"]), 0, 0
    first = state.get("momentum_buffer") is None
    # torch starts the buffer with the plain gradient: the first step has no dampening.
    dampening = 0.0 if first else group["dampening"]
    key = (_MOMENTUM, float(group["lr"]), group["weight_decay"], group["momentum"], dampening, group["nesterov"])
    return key, _address(state, "momentum_buffer", p), 0


def _adamw(group: dict[str, Any], state: dict[str, Any], p: Tensor) -> _Step:
    if "step" not in state:
        state["step"] = torch.tensor(0.0)
    state["step"] += 1
    t, (beta1, beta2) = float(state["step"]), group["betas"]
    key = (_ADAMW, float(group["lr"]), group["weight_decay"], 0.0, 0.0, False, beta1, beta2, group["eps"],
           1 - beta1**t, math.sqrt(1 - beta2**t))  # fmt: skip
    return key, _address(state, "exp_avg", p), _address(state, "exp_avg_sq", p)


def prepare(
    optimizer: torch.optim.Optimizer, weights: Sequence[Tensor], biases: Sequence[Tensor | None]
) -> tuple[Plan, list[Tensor]]:
    """One step of these layers: wants, optimisers, groups and addresses of the native backward, and what it updates.

    A parameter that is frozen or that the optimizer does not hold is not updated.
    """
    check_alone()
    step = _sgd if isinstance(optimizer, torch.optim.SGD) else _adamw
    group_of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    kinds: dict[tuple[Any, ...], int] = {}
    wants: list[int] = []
    groups: list[int] = []
    addresses: list[int] = []
    updated: list[Tensor] = []
    for w, b in zip(weights, biases, strict=True):
        want, chosen, states = 0, [], []
        for bit, p in ((1, w), (2, b)):
            key: tuple[Any, ...] = (0,)
            one, two = 0, 0
            if p is not None and p.requires_grad and id(p) in group_of and p.numel():
                want |= bit
                key, one, two = step(group_of[id(p)], optimizer.state[p], p)
                updated.append(p)
            chosen.append(kinds.setdefault(key, len(kinds)))
            states += [one, two]
        wants.append(want)
        groups += chosen
        addresses += [0, 0, *states]
    return (wants, [_native.Optimiser.make(*key) for key in kinds], groups, addresses), updated


def raise_versions(parameters: Sequence[Tensor]) -> None:
    """What torch does at an in-place change: the kernels write behind its back."""
    if parameters:
        torch.autograd.graph.increment_version(parameters)
