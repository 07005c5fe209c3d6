"""A step of torch.optim.SGD or torch.optim.AdamW as the kernels take it: a rule and its states for each parameter.

Hyperparameters are read from the optimizer at each step, and its state stays in `optimizer.state`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .step_plan import Rule

__all__ = ["Rules", "rules_of"]

_SGD, _MOMENTUM, _ADAMW = 2, 3, 4

# A step has hundreds of parameters in few groups: what those of a group have in common is made once.
Rules = tuple[list[Rule], list[tuple[Tensor, ...]]]


def rules_of(optimizer: torch.optim.Optimizer, groups: Sequence[dict[str, Any]], parameters: Sequence[Tensor]) -> Rules:
    """The rule of each parameter, whose group is named beside it, and its states."""
    rules = _sgd if isinstance(optimizer, torch.optim.SGD) else _adamw
    return rules(groups, optimizer.state, parameters)


def _sgd(groups: Sequence[dict[str, Any]], states: Any, parameters: Sequence[Tensor]) -> Rules:
    distinct = {id(group): group for group in groups}
    if not any(group["momentum"] for group in distinct.values()):
        of_group = {key: _sgd_rule(group, True) for key, group in distinct.items()}
        return [of_group[id(group)] for group in groups], [()] * len(parameters)
    rules: list[Rule] = []
    buffers: list[tuple[Tensor, ...]] = []
    made: dict[tuple[int, bool], Rule] = {}
    for group, p in zip(groups, parameters, strict=True):
        state = states[p] if group["momentum"] else {}
        # torch starts the buffer with the plain gradient: the first step has no dampening.
        begins = state.get("momentum_buffer") is None
        if (id(group), begins) not in made:
            made[id(group), begins] = _sgd_rule(group, begins)
        rules.append(made[id(group), begins])
        buffers.append(_states(state, ("momentum_buffer",), p) if group["momentum"] else ())
    return rules, buffers


def _sgd_rule(group: dict[str, Any], begins: bool) -> Rule:
    rate, decay, momentum = float(group["lr"]), float(group["weight_decay"]), float(group["momentum"])
    if not momentum:
        return Rule(_SGD, rate, decay)
    return Rule(_MOMENTUM, rate, decay, momentum, 0.0 if begins else float(group["dampening"]), bool(group["nesterov"]))


def _adamw(groups: Sequence[dict[str, Any]], states: Any, parameters: Sequence[Tensor]) -> Rules:
    of_each = [states[p] for p in parameters]
    for state in of_each:
        if "step" not in state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32, device="cpu")
    steps = [state["step"] for state in of_each]
    if not steps:
        return [], []
    torch._foreach_add_(steps, 1)
    made: dict[tuple[int, float], Rule] = {}
    rules: list[Rule] = []
    for group, t in zip(groups, torch.stack(steps).tolist(), strict=True):
        if (id(group), t) not in made:
            made[id(group), t] = _adamw_rule(group, t)
        rules.append(made[id(group), t])
    return rules, [_states(state, ("exp_avg", "exp_avg_sq"), p) for state, p in zip(of_each, parameters, strict=True)]


def _adamw_rule(group: dict[str, Any], t: float) -> Rule:
    beta1, beta2 = (float(beta) for beta in group["betas"])
    return Rule(
        _ADAMW, float(group["lr"]), float(group["weight_decay"]), beta1=beta1, beta2=beta2, eps=float(group["eps"]),
        correction1=1 - beta1**t, correction2=math.sqrt(1 - beta2**t),
    )  # fmt: skip


def _states(state: dict[str, Any], names: tuple[str, ...], p: Tensor) -> tuple[Tensor, ...]:
    """The state tensors, laid out as p: one that was made or loaded row by row is turned around once."""
    shape, dtype, stride = p.shape, p.dtype, p.stride()
    for name in names:
        value = state.get(name)
        if value is None or value.shape != shape or value.dtype != dtype or value.stride() != stride:
            kept = torch.zeros_like(p, memory_format=torch.preserve_format).detach()
            state[name] = kept if value is None else kept.copy_(value)
    return tuple(state[name] for name in names)
