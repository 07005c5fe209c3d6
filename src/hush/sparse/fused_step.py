"""`step(model, loss)`: backward and update in one, for a model that was accelerated with its optimizer.

    SGD        w ← w − lr (g + λ w)
    momentum   m ← μ m + (1 − d) g;  w ← w − lr m           (Nesterov: w − lr (g + μ m))
    AdamW      as torch.optim.AdamW

A sparse step spends much of its time on reading and writing weights, so inside `step` the gradient of a fused layer is
applied while it is still in registers and never stored; `optimizer.step()`, which `step` then calls, updates the rest.
Nothing but `step` updates anything: a backward outside of it, or `torch.autograd.grad`, gives gradients as everywhere.

A parameter is fused only where that gives what the two calls would: its gradient comes from one place in the graph,
nothing else in the graph reads its memory, it has no gradient yet, nobody hooks it, and the optimizer holds it. `step`
looks at the graph to know; all others take the ordinary way in the same call. Where the backward raises an error, as a
hook of yours may, the layers that it had reached have taken their step. Hyperparameters are read from the optimizer at
each step (schedulers work), its state lives in `optimizer.state` (checkpoints work).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from .gradients import Call, FusedParameter, StretchFunction
from .layout import storage_address
from .lone_linear import LinearFunction
from .step_plan import Rule, StepPlan

__all__ = ["bind", "check_optimizer", "fused_backward", "step", "unbind"]

_SGD, _MOMENTUM, _ADAMW = 2, 3, 4
_BOND = "_hush_optimizer"  # in the model's __dict__


def step(model: nn.Module, loss: Tensor) -> None:
    """`loss.backward()`, `optimizer.step()` and `optimizer.zero_grad()` in one, with the update inside the backward.

    For models accelerated with `accelerate(model, optimizer=optimizer)`.

    Raises:
        ValueError: if the model has no optimizer, or the loss is not one number that has a graph.
    """
    optimizer = _optimizer_of(model)
    fused_backward(model, loss)
    optimizer.step()
    optimizer.zero_grad()


def fused_backward(model: nn.Module, loss: Tensor) -> None:
    """The backward of `step`: fused parameters have been updated after it, the others have their gradients.

    For training loops that call `optimizer.step()` themselves; there must be nothing between the two that changes
    gradients (clipping, scaling, accumulation), since the fused ones are gone by then.
    """
    optimizer = _optimizer_of(model)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"The loss must be one number, got {shape}.")
    if loss.grad_fn is None:
        raise ValueError("The loss has no graph to go back through: was it computed under torch.no_grad()?")
    _check_kind(optimizer)
    update = _Update(optimizer)
    nodes = update.open(loss)
    try:
        loss.backward()
    finally:
        for node in nodes:
            node.fused = None


class _Bond:
    """A model's optimizer. Copies go without: the optimizer holds the original's parameters and knows of no others."""

    def __init__(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        self.optimizer = optimizer

    def __deepcopy__(self, memo: dict[int, Any]) -> _Bond:
        return _Bond()

    def __getstate__(self) -> dict[str, Any]:
        return {"optimizer": None}


def _optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    bond = model.__dict__.get(_BOND)
    if not isinstance(bond, _Bond) or bond.optimizer is None:
        raise ValueError("This model has no optimizer to step; call accelerate(model, optimizer=optimizer) first.")
    return bond.optimizer


def bind(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.__dict__[_BOND] = _Bond(optimizer)


def unbind(model: nn.Module) -> None:
    model.__dict__.pop(_BOND, None)


def check_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raises ValueError unless the update can be fused and is this model's."""
    _check_kind(optimizer)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in held for p in model.parameters()):
        raise ValueError("The optimizer holds no parameter of this model; make it with model.parameters().")


def _check_kind(optimizer: torch.optim.Optimizer) -> None:
    if type(optimizer) not in (torch.optim.SGD, torch.optim.AdamW):
        raise ValueError(
            f"The optimizer is {type(optimizer).__name__}; torch.optim.SGD and torch.optim.AdamW can be fused. "
            "Call accelerate(model) without optimizer= to use any other."
        )
    for group in optimizer.param_groups:
        for option in ("maximize", "amsgrad", "differentiable"):
            if group.get(option):
                raise ValueError(f"The optimizer has {option}=True, which cannot be fused; set it to False.")
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise ValueError(
            "The optimizer is fused into the backward, which cannot average gradients over processes; "
            "call accelerate(model) without optimizer= for distributed training."
        )


class _Update:
    """One open step: which parameters may be updated inside the backward, and how."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._rules = _sgd if isinstance(optimizer, torch.optim.SGD) else _adamw
        self._groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        self._fusible: set[int] = set()
        self._read_once: set[int] = set()
        self._updated: list[Tensor] = []

    def open(self, loss: Tensor) -> list[Any]:
        """Look at the graph of the loss, and tell its stretches of this step."""
        edges: Counter[int] = Counter()  # into each leaf
        readers: Counter[int] = Counter()  # of each piece of memory, in the backward
        leaves: dict[int, Tensor] = {}
        stretches: list[Any] = []
        for node, following in _nodes(loss):
            if type(node) is _NODE:
                stretches.append(node)
                readers.update(node.call.memories)
            elif type(node) is _LINEAR:
                stretches.append(node)
                x, _ = node.saved_tensors
                readers.update([*node.memories, *([] if x is None else [storage_address(x)])])
            else:
                readers.update(storage_address(t) for t in _saved_tensors(node))
            for variable in following:
                edges[id(variable)] += 1
                leaves[id(variable)] = variable
        self._read_once = {memory for memory, count in readers.items() if count == 1}
        self._fusible = {key for key, p in leaves.items() if edges[key] == 1 and self._is_fusible(p)}
        for node in stretches:
            node.fused = self
        return stretches

    def _is_fusible(self, p: Tensor) -> bool:
        hooked = p._backward_hooks or p._post_accumulate_grad_hooks
        return id(p) in self._groups and p.grad is None and not hooked and p.numel() > 0

    def plan(self, call: Call, plan: StepPlan, parameters: Sequence[Tensor]) -> set[int]:
        """See `hush.sparse.gradients.FusedUpdate`."""
        program = call.program
        # A weight that was turned around takes its step behind the kernels, which keep the mean inside of them.
        if not program.takes_updates or (program.row_gradients and call.centered):
            return set()
        taken = self.updates(parameters, call.memories)
        for i, rule, states in taken:
            plan.update(*call.place(i), rule, states)
        return {i for i, _, _ in taken}

    def updates(self, parameters: Sequence[Tensor], memories: Sequence[int]) -> list[FusedParameter]:
        """See `hush.sparse.gradients.FusedUpdate`."""
        taken = [
            i
            for i, (p, memory) in enumerate(zip(parameters, memories, strict=True))
            if id(p) in self._fusible and memory in self._read_once
        ]
        updated = [parameters[i] for i in taken]
        rules = self._rules([self._groups[id(p)] for p in updated], self._optimizer.state, updated)
        self._updated += updated
        return [FusedParameter(i, rule, states) for i, (rule, states) in zip(taken, rules, strict=True)]

    def may_change(self, p: Tensor) -> bool:
        """See `hush.sparse.gradients.FusedUpdate`."""
        held = id(p) in self._groups
        self._updated += [p] if held else []
        return held

    def done(self) -> None:
        # What torch does at an in-place change: the kernels write behind its back.
        if self._updated:
            torch.autograd.graph.increment_version(self._updated)
        self._updated = []


_NODE: Any = StretchFunction._backward_cls
_LINEAR: Any = LinearFunction._backward_cls


def _nodes(loss: Tensor) -> Iterator[tuple[Any, list[Tensor]]]:
    """Every node of the graph of the loss but those of its leaves, and the leaves that follow it."""
    seen: set[Any] = set()
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaves: list[Tensor] = []
        for following, _ in node.next_functions:
            variable = getattr(following, "variable", None)
            if variable is None:
                waiting.append(following)
            else:
                leaves.append(variable)
        yield node, leaves


@cache
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))


def _saved_tensors(node: Any) -> list[Tensor]:
    """What a node will read in the backward."""
    found: list[Any] = []
    for name in _saved_names(node.__class__):
        try:
            value = getattr(node, name)
        except RuntimeError:  # freed, or changed in place: the backward will say so
            continue
        found += value if isinstance(value, (list, tuple)) else [value]
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        found += node.saved_tensors
    return [value for value in found if isinstance(value, Tensor)]


def _states(state: dict[str, Any], names: tuple[str, ...], p: Tensor) -> tuple[Tensor, ...]:
    """The state tensors, laid out as p: one that was made or loaded row by row is turned around once."""
    shape, dtype, stride = p.shape, p.dtype, p.stride()
    for name in names:
        value = state.get(name)
        if value is None or value.shape != shape or value.dtype != dtype or value.stride() != stride:
            kept = torch.zeros_like(p, memory_format=torch.preserve_format).detach()
            state[name] = kept if value is None else kept.copy_(value)
    return tuple(state[name] for name in names)


# The rule of each parameter and its states. A step has hundreds of parameters in few groups: what those of a group have
# in common is made once.
_Rules = Iterator[tuple[Rule, tuple[Tensor, ...]]]


def _sgd(groups: Sequence[dict[str, Any]], states: Any, parameters: Sequence[Tensor]) -> _Rules:
    known: dict[tuple[int, bool], Rule] = {}
    for group, p in zip(groups, parameters, strict=True):
        state = states[p] if group["momentum"] else {}
        # torch starts the buffer with the plain gradient: the first step has no dampening.
        begins = state.get("momentum_buffer") is None
        rule = known.get((id(group), begins))
        if rule is None:
            known[id(group), begins] = rule = _sgd_rule(group, begins)
        yield rule, _states(state, ("momentum_buffer",), p) if group["momentum"] else ()


def _sgd_rule(group: dict[str, Any], begins: bool) -> Rule:
    rate, decay, momentum = float(group["lr"]), float(group["weight_decay"]), float(group["momentum"])
    if not momentum:
        return Rule(_SGD, rate, decay)
    return Rule(_MOMENTUM, rate, decay, momentum, 0.0 if begins else float(group["dampening"]), bool(group["nesterov"]))


def _adamw(groups: Sequence[dict[str, Any]], states: Any, parameters: Sequence[Tensor]) -> _Rules:
    if not parameters:
        return
    of_each = [states[p] for p in parameters]
    for state in of_each:
        if "step" not in state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32, device="cpu")
    steps = [state["step"] for state in of_each]
    torch._foreach_add_(steps, 1)
    known: dict[tuple[int, float], Rule] = {}
    for group, p, state, t in zip(groups, parameters, of_each, torch.stack(steps).tolist(), strict=True):
        rule = known.get((id(group), t))
        if rule is None:
            known[id(group), t] = rule = _adamw_rule(group, t)
        yield rule, _states(state, ("exp_avg", "exp_avg_sq"), p)


def _adamw_rule(group: dict[str, Any], t: float) -> Rule:
    beta1, beta2 = (float(beta) for beta in group["betas"])
    return Rule(
        _ADAMW, float(group["lr"]), float(group["weight_decay"]), beta1=beta1, beta2=beta2, eps=float(group["eps"]),
        correction1=1 - beta1**t, correction2=math.sqrt(1 - beta2**t),
    )  # fmt: skip
