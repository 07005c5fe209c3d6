"""Turns a model's activation → Linear runs over to the engine, in place, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from . import _engine, _pages, find, optimiser
from .link import Link

__all__ = ["Report", "accelerate", "decelerate", "report"]


@dataclass(frozen=True)
class Report:
    """What runs on the engine, and what was left and why."""

    taken: tuple[tuple[str, ...], ...]  # names of the Linears of each run, in order
    left: tuple[tuple[str, str], ...]  # (module name, reason)

    def __str__(self) -> str:
        layers = sum(len(run) for run in self.taken)
        lines = [f"{layers} Linear layers in {len(self.taken)} sparse runs on {_engine.isa()}"]
        for run in self.taken:
            lines.append(f"  taken  {run[0]}" + (f" … {run[-1]} ({len(run)} layers)" if len(run) > 1 else ""))
        lines += [f"  left   {name}: {reason}" for name, reason in self.left]
        return "\n".join(lines)


Step = Callable[[Tensor], Tensor]


class _Sequence:
    """The forward of a Sequential whose runs go through links; children stay untouched and usable by themselves."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps

    def __call__(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        return x


class _Inner:
    """The forward of a module inside a run found by data flow: nothing, because the run's last Linear does it all."""

    def __init__(self, link: Link, module: nn.Module) -> None:
        self.link, self.module = link, module

    def __call__(self, x: Tensor) -> Tensor:
        return type(self.module).forward(self.module, x) if self.link.falls_through(x) else x


class _Last(_Inner):
    """The forward of that last Linear."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if self.link.falls_through(x) else self.link(x)


def _links(model: nn.Module) -> Iterator[Link]:
    for module in model.modules():
        forward = module.__dict__.get("forward")
        if isinstance(forward, _Sequence):
            yield from (s for s in forward.steps if isinstance(s, Link))
        elif isinstance(forward, _Last):
            yield forward.link


def accelerate(
    model: nn.Module,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    adaptive: bool = True,
    frozen: bool = False,
) -> nn.Module:
    """Runs the model's activation → Linear runs on the sparse engine: same outputs, same gradients, fewer flops.

    In place; the model is returned. Weights keep their shape and identity and are laid out input-major (strides
    (1, out)), so state_dict, optimisers, DDP, checkpoints and deepcopy work as before. Tensors the engine does not
    take (other devices, other dtypes, autocast) and runs with hooks on their inside go through the plain modules.

    Arguments:
        optimizer: a torch.optim.SGD or AdamW whose update of these layers is applied inside the backward; see
            `hush.sparse.optimiser` for what that means. Without it, gradients go to `.grad` as usual.
        frozen: for inference only, the parameters as they are at the first call: later changes are not looked for,
            which saves time at small batches.
        adaptive: run a link dense while its activations are denser than the crossover measured on this machine.

    `report(model)` tells what was taken and left; `decelerate(model)` undoes it.
    """
    if optimizer is not None:
        optimiser.check_optimizer(optimizer)
    decelerate(model)
    names = {id(m): name or "(model)" for name, m in model.named_modules()}
    taken: set[int] = set()
    runs: list[find.Run] = []
    for module in list(model.modules()):
        if type(module) is not nn.Sequential:
            continue
        steps: list[Step] = [module[k] for k in range(len(module))]
        found = find.find_in_sequential(module, taken)
        for run in reversed(found):
            steps[run.start : run.start + 2 * len(run.linears)] = [_ready(run, optimizer, adaptive, frozen)]
        if found:
            module.forward = _Sequence(steps)  # type: ignore[method-assign]
        runs += found
    untraced = None
    if any(find.plain_linear(m) and id(m) not in taken for m in model.modules()) and any(
        find.knows(m) for m in model.modules()
    ):
        in_graph, untraced = find.find_in_graph(model, taken)
        for run in in_graph:
            link = _ready(run, optimizer, adaptive, frozen)
            for module in [*run.activations, *run.linears]:
                module.forward = _Inner(link, module)
            run.linears[-1].forward = _Last(link, run.linears[-1])  # type: ignore[method-assign,assignment]
        runs += in_graph
    left = []
    for module in model.modules():
        if isinstance(module, nn.Linear) and id(module) not in taken:
            left.append((names[id(module)], _reason(module, untraced)))
    model.__dict__["_hush_report"] = Report(
        tuple(tuple(names[id(m)] for m in run.linears) for run in runs), tuple(left)
    )
    return model


def _reason(module: nn.Linear, untraced: str | None) -> str:
    if not find.plain_linear(module):
        return f"{type(module).__name__} is not a plain nn.Linear"
    if untraced:
        return f"not inside an nn.Sequential, and the model's data flow is unknown: {untraced}"
    return "no known activation module feeds it alone"


def _ready(run: find.Run, optimizer: torch.optim.Optimizer | None, adaptive: bool, frozen: bool) -> Link:
    placed = _pages.lay_out([linear.weight.data for linear in run.linears])
    for linear, weight in zip(run.linears, placed, strict=True):
        linear.weight.data = weight
        if linear.weight.grad is not None:
            linear.weight.grad = _engine.input_major(linear.weight.grad)
    link = Link(run.activations, run.linears)
    link.optimizer, link.adaptive, link.frozen = optimizer, adaptive, frozen
    return link


def decelerate(model: nn.Module) -> nn.Module:
    """Undoes `accelerate`: the model's own forwards, weights row by row again."""
    linears = [linear for link in _links(model) for linear in link.linears]
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), (_Sequence, _Inner)):
            del module.__dict__["forward"]
    for linear in linears:
        linear.weight.data = linear.weight.data.contiguous()
    model.__dict__.pop("_hush_report", None)
    return model


def report(model: nn.Module) -> Report:
    """What the last `accelerate` of this model took and left."""
    found = model.__dict__.get("_hush_report")
    if found is None:
        raise ValueError("This model is not accelerated; call hush.sparse.accelerate(model) first.")
    return found
