"""A run of activation → Linear pairs inside a model, and how it is executed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from . import _engine, _native, crossover, ops, optimiser
from .activation import Activation, activation_of
from .ready import Ready

__all__ = ["Link"]

_GLOBAL_HOOKS: list[dict[Any, Any]] = [
    nn.modules.module._global_forward_hooks,
    nn.modules.module._global_forward_pre_hooks,
    nn.modules.module._global_backward_hooks,
    nn.modules.module._global_backward_pre_hooks,
]
_PROBE = 32  # calls between two looks at the density while a link runs dense


class Link:
    """h ↦ W_L φ_L(… W₁ φ₁(h) + b₁ …) + b_L over modules of a model, which stay the owners of everything.

    The modules are referred to, not held as children: state_dict, parameters() and deepcopy see the model as it was.
    """

    def __init__(self, activations: Sequence[nn.Module], linears: Sequence[nn.Linear]) -> None:
        self.activations, self.linears = list(activations), list(linears)
        self.optimizer: torch.optim.Optimizer | None = None
        self.adaptive = True
        self.frozen = False
        self.density = 0.0  # of the last sparse run
        self._calls = 0
        self._ready: Ready | None = None
        # Hooks on the inside expect the inner tensors; these dicts stay the same objects for a module's life.
        inner = [*self.activations, *self.linears]
        self._hooks: list[dict[Any, Any]] = [
            d for m in inner for d in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks)
        ]
        self._hooks += [m._backward_pre_hooks for m in inner]

    def __deepcopy__(self, memo: dict[int, Any]) -> Link:
        twin = Link.__new__(Link)
        memo[id(self)] = twin
        twin.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__getstate__().items()})
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # A copy goes without the fused optimizer: its owner holds the original's and would not know of another.
        return {**self.__dict__, "_ready": None, "optimizer": None}

    def phis(self) -> list[Activation]:
        """The activations as they are now: a threshold may have been changed since."""
        return [activation_of(a) for a in self.activations]  # type: ignore[misc]

    def __call__(self, h: Tensor) -> Tensor:
        if self.falls_through(h):
            return self._plain(h)
        if torch.compiler.is_compiling():
            return self._traced(h)
        ready = self._prepare()
        width = h.shape[-1] if h.dim() else 0
        training = torch.is_grad_enabled() and (h.requires_grad or any(p.requires_grad for p in ready.parameters))
        if training and self.frozen:
            raise ValueError("This model was accelerated with frozen=True, for inference only; use torch.no_grad().")
        if width != ready.inputs or not (ready.trains if training else ready.infers):
            return self._plain(h)  # torch runs it, or says what is wrong
        if self.adaptive and not self._pays(h, ready, training):
            return self._plain(h)
        rows = h if h.dim() == 2 else h.reshape(-1, width)
        if training:
            out = _Run.apply(rows, self, ready, *ready.parameters)
        else:
            out, _, active = _engine.run(ready.chain, rows, ready.outputs, False)
            self._note(active, rows, ready)
        return out if h.dim() == 2 else out.reshape(*h.shape[:-1], ready.outputs)

    def falls_through(self, h: Tensor) -> bool:
        """Whether the plain modules run: another device or dtype, autocast, or somebody listens on the inside."""
        return (
            h.device.type != "cpu"
            or h.dtype != torch.float32
            or torch.is_autocast_enabled("cpu")
            or (any(self._hooks + _GLOBAL_HOOKS) if torch.compiler.is_compiling() else self._listened())
        )

    def _listened(self) -> bool:
        return _native.filled(self._hooks) or _native.filled(_GLOBAL_HOOKS)

    def _traced(self, h: Tensor) -> Tensor:
        """One operator in the compiled graph. A fused optimizer has no place there: gradients go to .grad."""
        weights, biases = [m.weight for m in self.linears], [m.bias for m in self.linears]
        if h.dim() == 0 or any(p is not None and p.dtype != torch.float32 for p in weights + biases):
            return self._plain(h)
        return ops.chain(h, weights, biases, self.phis())

    def _plain(self, h: Tensor) -> Tensor:
        """The modules themselves: hooks run, and what torch has to say about a bad input, torch says."""
        for activation, linear in zip(self.activations, self.linears, strict=True):
            h = _own(activation, h)
            if linear.weight.dtype == torch.bfloat16 and h.dtype == torch.float32:  # the engine would take it
                h = F.linear(h, linear.weight.float(), linear.bias)
            else:
                h = _own(linear, h)
        return h

    def _pays(self, h: Tensor, ready: Ready, training: bool) -> bool:
        self._calls += 1
        if self.density <= crossover.limit(ready.widest, h.numel() // max(h.shape[-1], 1), training):
            return True
        if self._calls % _PROBE == 0 and h.numel():  # the first activation stands for the chain
            with torch.no_grad():
                self.density = float(torch.count_nonzero(self.phis()[0](h))) / h.numel()
        return False

    def _note(self, active: int, rows: Tensor, ready: Ready) -> None:
        units = rows.shape[0] * ready.units
        self.density = active / units if units else 0.0

    def _prepare(self) -> Ready:
        ready = self._ready
        if ready is None or not (self.frozen or ready.holds()):
            ready = self._ready = Ready(self.linears, self.activations, self.phis())
        return ready


def _own(module: nn.Module, x: Tensor) -> Tensor:
    """The module as its class has it; where `accelerate` replaced its forward, its hooks have run already."""
    return type(module).forward(module, x) if "forward" in module.__dict__ else module(x)


class _Run(torch.autograd.Function):
    """A link with gradients: returned to autograd, or applied on the spot when an optimizer is fused."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, link: Link, ready: Ready, *parameters: Tensor) -> Tensor:
        out, saved, active = _engine.run(ready.chain, rows, ready.outputs, True)
        link._note(active, rows, ready)
        ctx.link, ctx.ready = link, ready
        ctx.save_for_backward(saved, *parameters)  # autograd then refuses a backward after an in-place change
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        ready, optimizer = ctx.ready, ctx.link.optimizer
        saved, *parameters = ctx.saved_tensors
        gradients: list[Tensor | None] = [None] * len(parameters)
        updated: list[Tensor] = []
        if optimizer is not None:
            plan, updated = optimiser.prepare(optimizer, ready.weights, ready.biases)
        else:
            plan, gradients = _plain_plan(ready.weights, ready.biases, ctx.needs_input_grad[3:])
        inputs = ready.inputs if ctx.needs_input_grad[0] else None
        grad_h = _engine.run_backward(ready.chain, grad, saved, inputs, *plan)
        optimiser.raise_versions(updated)
        return grad_h, None, None, *gradients


def _plain_plan(
    weights: Sequence[Tensor], biases: Sequence[Tensor | None], needed: Sequence[bool]
) -> tuple[optimiser.Plan, list[Tensor | None]]:
    """Gradients to be written, laid out as the parameters."""
    n = len(weights)
    wants, addresses = [0] * n, [0] * (6 * n)
    gradients: list[Tensor | None] = [None] * len(needed)
    at_bias = n
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        if needed[i]:
            g = gradients[i] = torch.empty(w.shape[1], w.shape[0]).t()
            wants[i] |= 1 if w.numel() else 0
            addresses[6 * i] = g.data_ptr()
        if b is None:
            continue
        if needed[at_bias]:
            g = gradients[at_bias] = torch.empty(b.shape[0])
            wants[i] |= 2 if b.numel() else 0
            addresses[6 * i + 1] = g.data_ptr()
        at_bias += 1
    return (wants, [_engine.GRADIENT], [0, 0] * n, addresses), gradients
