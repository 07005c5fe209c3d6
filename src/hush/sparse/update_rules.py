"""A step of torch.optim.SGD or torch.optim.AdamW as the kernels take it: a rule and its states for each parameter.

Hyperparameters are read from the optimizer at each step, and its state stays in `optimizer.state`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _native
from .step_plan import Rule, States
from .witness import Witness

__all__ = ["RuleReader", "Rules"]

_SGD, _MOMENTUM, _ADAMW = 2, 3, 4

Rules = tuple[list[Rule], list[States]]


class RuleReader:
    """Reads an optimizer at each step, and looks at its states again only where they are no longer what they were.

    A step has hundreds of parameters in few groups: what those of a group have in common is made once.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._seen: dict[tuple[int, ...], _Seen] = {}  # by the ids of the parameters, which it keeps

    def read(self, groups: Sequence[dict[str, Any]], parameters: Sequence[Tensor]) -> Rules:
        """The rule of each parameter, whose group is named beside it, and its states. AdamW's steps are counted on."""
        if isinstance(self.optimizer, torch.optim.SGD):
            return self._sgd(groups, parameters)
        return self._adamw(groups, parameters)

    def fitting(self, parameters: Sequence[Tensor], places: Sequence[int]) -> Sequence[int]:
        """Those of the places whose parameters have states of their own dtype, shape and device, or none yet.

        Whoever casts a model leaves the states as they are, and torch goes on with them so.
        """
        if isinstance(self.optimizer, torch.optim.SGD):
            if not any(group["momentum"] for group in self.optimizer.param_groups):
                return places
            names: tuple[str, ...] = ("momentum_buffer",)
        else:
            names = ("exp_avg", "exp_avg_sq")
        seen = self._seen.get(tuple(id(parameters[i]) for i in places))
        if seen is not None and seen.holds(self.optimizer):
            return places
        states = self.optimizer.state
        return [i for i in places if _fits(parameters[i], states.get(parameters[i], {}), names)]

    def _sgd(self, groups: Sequence[dict[str, Any]], parameters: Sequence[Tensor]) -> Rules:
        distinct = {id(group): group for group in groups}
        if not any(group["momentum"] for group in distinct.values()):
            of_group = {key: _sgd_rule(group, True) for key, group in distinct.items()}
            return [of_group[id(group)] for group in groups], [States()] * len(parameters)
        with_momentum = [p for group, p in zip(groups, parameters, strict=True) if group["momentum"]]
        # torch starts the buffer with the plain gradient: the first step has no dampening.
        begins = [self.optimizer.state[p].get("momentum_buffer") is None for p in with_momentum]
        found = iter(zip(begins, self._look(with_momentum, ("momentum_buffer",)).states, strict=True))
        made: dict[tuple[int, bool], Rule] = {}
        rules, states = [], []
        for group in groups:
            first, state = next(found) if group["momentum"] else (True, States())
            if (id(group), first) not in made:
                made[id(group), first] = _sgd_rule(group, first)
            rules.append(made[id(group), first])
            states.append(state)
        return rules, states

    def _adamw(self, groups: Sequence[dict[str, Any]], parameters: Sequence[Tensor]) -> Rules:
        seen = self._look(parameters, ("exp_avg", "exp_avg_sq"), counts=True)
        made: dict[tuple[int, float], Rule] = {}
        rules: list[Rule] = []
        for group, t in zip(groups, _native.count_on(seen.counters), strict=True):
            if (id(group), t) not in made:
                made[id(group), t] = _adamw_rule(group, t)
            rules.append(made[id(group), t])
        return rules, seen.states

    def _look(self, parameters: Sequence[Tensor], names: tuple[str, ...], counts: bool = False) -> _Seen:
        key = tuple(map(id, parameters))
        seen = self._seen.get(key)
        if seen is None or not seen.holds(self.optimizer):
            self._seen = {k: s for k, s in self._seen.items() if s.holds(self.optimizer)}  # nothing that is out of use
            seen = self._seen[key] = _Seen(self.optimizer, parameters, names, counts)
        return seen


class _Seen:
    """The states of some parameters, each laid out as its parameter, and the witness that they still lie there."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], names: tuple[str, ...], counts: bool
    ) -> None:
        self._all = optimizer.state
        self._witness = Witness()
        self.states: list[States] = []
        counters: list[Tensor] = []
        for p in parameters:
            state = optimizer.state[p]
            counters += [_counter(state)] if counts else []
            tensors = tuple(_laid_as(p, state, name) for name in names)
            self.states.append(States(tensors, tuple(t.data_ptr() for t in tensors)))
            self._witness.entry(optimizer.state, p)
            for name in (*names, "step") if counts else names:
                self._witness.entry(state, name)
            self._witness.memory((p, *tensors))
        self._witness.memory(counters)
        self.counters = [t.data_ptr() for t in counters]

    def holds(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer.state is self._all and self._witness.holds()


def _fits(p: Tensor, state: dict[str, Any], names: tuple[str, ...]) -> bool:
    found = [value for value in map(state.get, names) if value is not None]
    return all((v.dtype, v.shape, v.device) == (p.dtype, p.shape, p.device) for v in found)


def _laid_as(p: Tensor, state: dict[str, Any], name: str) -> Tensor:
    """The state's tensor, laid out as p: one that was made or loaded row by row is turned around once."""
    value = state.get(name)
    if value is None or value.stride() != p.stride():
        kept = torch.zeros_like(p, memory_format=torch.preserve_format).detach()
        value = state[name] = kept if value is None else kept.copy_(value)
    return value


def _counter(state: dict[str, Any]) -> Tensor:
    """How many steps there have been, as torch counts them: in a float32."""
    count = state.get("step")
    if not isinstance(count, Tensor) or count.dtype != torch.float32 or count.device.type != "cpu":
        count = state["step"] = torch.tensor(float(count or 0.0), dtype=torch.float32, device="cpu")
    return count


def _sgd_rule(group: dict[str, Any], begins: bool) -> Rule:
    rate, decay, momentum = float(group["lr"]), float(group["weight_decay"]), float(group["momentum"])
    if not momentum:
        return Rule(_SGD, rate, decay)
    return Rule(_MOMENTUM, rate, decay, momentum, 0.0 if begins else float(group["dampening"]), bool(group["nesterov"]))


def _adamw_rule(group: dict[str, Any], t: float) -> Rule:
    beta1, beta2 = (float(beta) for beta in group["betas"])
    return Rule(
        _ADAMW, float(group["lr"]), float(group["weight_decay"]), beta1=beta1, beta2=beta2, eps=float(group["eps"]),
        correction1=1 - beta1**t, correction2=math.sqrt(1 - beta2**t),
    )  # fmt: skip
