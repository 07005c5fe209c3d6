"""`step(model, loss)`: backward and update in one, for a model that was accelerated with its optimizer.

    SGD        w ← w − lr (g + λ w)
    momentum   m ← μ m + (1 − d) g;  w ← w − lr m           (Nesterov: w − lr (g + μ m))
    AdamW      as torch.optim.AdamW

A sparse step spends much of its time on reading and writing weights, so inside `step` the gradient of a fused layer is
applied while it is still in registers and never stored; `optimizer.step()`, which `step` then calls, updates the rest.
Nothing but `step` updates anything: a backward outside of it, or `torch.autograd.grad`, gives gradients as everywhere.

A parameter is fused only where that gives what the two calls would: its gradient comes from one place in the graph,
nothing else in the graph reads its memory, it has no gradient yet, nobody hooks it, and the optimizer holds it, with
states of its dtype. `step` looks at the graph to know; all others take the ordinary way in the same call. Where the
backward raises an error, as a hook of yours may, the layers that it had reached have taken their step. Hyperparameters
are read from the optimizer at each step (schedulers work), its state lives in `optimizer.state` (checkpoints work).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from .gradients import Call, FusedParameter
from .loss_graph import LossGraph
from .step_plan import StepPlan
from .update_rules import RuleReader, Rules

__all__ = ["bind", "check_optimizer", "fused_backward", "step", "unbind"]

_BOND = "_hush_optimizer"  # in the model's __dict__


def step(model: nn.Module, loss: Tensor) -> None:
    """`loss.backward()`, `optimizer.step()` and `optimizer.zero_grad()` in one, with the update inside the backward.

    For models accelerated with `accelerate(model, optimizer=optimizer)`.

    Raises:
        ValueError: if the model has no optimizer, or the loss is not one number that has a graph.
    """
    optimizer = _reader_of(model).optimizer
    fused_backward(model, loss)
    optimizer.step()
    optimizer.zero_grad()


def fused_backward(model: nn.Module, loss: Tensor) -> None:
    """The backward of `step`: fused parameters have been updated after it, the others have their gradients.

    For training loops that call `optimizer.step()` themselves; there must be nothing between the two that changes
    gradients (clipping, scaling, accumulation), since the fused ones are gone by then.
    """
    reader = _reader_of(model)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"The loss must be one number, got {shape}.")
    if loss.grad_fn is None:
        raise ValueError("The loss has no graph to go back through: was it computed under torch.no_grad()?")
    _check_kind(reader.optimizer)
    graph = LossGraph(loss)
    update = _Update(reader, graph)
    nodes = [*graph.stretches, *graph.linears]
    for node in nodes:
        node.fused = update
    try:
        # torch takes longer over hundreds of leaves that get no gradient than the kernels over the whole backward.
        loss.backward(inputs=update.reached)
    finally:
        for node in nodes:
            node.fused = None


class _Bond:
    """A model's optimizer. Copies go without: the optimizer holds the original's parameters and knows of no others."""

    def __init__(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        self.reader = None if optimizer is None else RuleReader(optimizer)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Bond:
        return _Bond()

    def __getstate__(self) -> dict[str, Any]:
        return {"reader": None}


def _reader_of(model: nn.Module) -> RuleReader:
    bond = model.__dict__.get(_BOND)
    if not isinstance(bond, _Bond) or bond.reader is None:
        raise ValueError("This model has no optimizer to step; call accelerate(model, optimizer=optimizer) first.")
    return bond.reader


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

    def __init__(self, reader: RuleReader, graph: LossGraph) -> None:
        self._reader = reader
        self._groups = {id(p): group for group in reader.optimizer.param_groups for p in group["params"]}
        self._updated: list[Tensor] = []
        self._readers = graph.readers
        edges = graph.edges
        self._fusible = {
            key
            for key, p in graph.leaves.items()
            if edges[key] == 1
            and key in self._groups
            and p.grad is None
            and not p._backward_hooks
            and not p._post_accumulate_grad_hooks
            and p.numel() > 0
        }
        self._taken: dict[int, list[int]] = {}  # by the id of a stretch's call, the positions of its parameters
        left = dict(graph.leaves)
        for node in graph.stretches:
            call, parameters, program = node.call, node.parameters, node.call.program
            # A weight that was turned around takes its step behind the kernels, which keep the mean inside of them.
            updates = program.takes_updates and not (program.row_gradients and call.centered)
            self._taken[id(call)] = places = self._places(parameters, call.memories) if updates else []
            # The backward visits a node only on the way to a leaf that it was asked for. The first parameter that is
            # updated makes sure of it, and gets no gradient.
            for i in places[1:]:
                del left[id(parameters[i])]
        self.reached: list[Tensor] | None = None if graph.has_foreign_functions else list(left.values())

    def _places(self, parameters: Sequence[Tensor], memories: Sequence[int]) -> list[int]:
        """Which of the parameters may be updated inside the backward; `memories`: where each of them lies."""
        fusible, readers = self._fusible, self._readers
        places = [
            i
            for i, (p, memory) in enumerate(zip(parameters, memories, strict=True))
            if id(p) in fusible and readers[memory] == 1
        ]
        return list(self._reader.fitting(parameters, places))

    def plan(self, call: Call, plan: StepPlan, parameters: Sequence[Tensor]) -> set[int]:
        """See `hush.sparse.gradients.FusedUpdate`."""
        taken = self._taken[id(call)]
        rules, states = self._rules(parameters, taken)
        places = call.places()
        plan.update([places[i] for i in taken], rules, states)
        return set(taken)

    def updates(self, parameters: Sequence[Tensor], memories: Sequence[int]) -> list[FusedParameter]:
        """See `hush.sparse.gradients.FusedUpdate`."""
        taken = self._places(parameters, memories)
        rules, states = self._rules(parameters, taken)
        return [FusedParameter(*each) for each in zip(taken, rules, states, strict=True)]

    def _rules(self, parameters: Sequence[Tensor], taken: Sequence[int]) -> Rules:
        """The rules and states of those that are taken, which the backward then updates."""
        updated = [parameters[i] for i in taken]
        self._updated += updated
        return self._reader.read([self._groups[id(p)] for p in updated], updated)

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
