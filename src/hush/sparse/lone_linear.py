"""One Linear by itself. It leaves out the zeros of what it reads; where there are none, those of ∂L/∂out.

The first Linear of a feed-forward block, W₂ φ(W₁ x + b₁) + b₂, reads a dense x and must compute all of its outputs,
since they decide who is active. But what comes back to it is zero wherever φ is silent, and then both products of its
backward are as sparse as those of the second Linear. The same holds for the two Linears in front of a gated block, for
a network's first layer, and for whatever else stands before an activation: nobody needs to recognise the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from . import crossover
from .backend import Backend
from .conditions import backend_of, has_memory, is_plain
from .dense_forward import dense_linear
from .gradients import FusedUpdate
from .layout import is_row_major, storage_address
from .linear_products import Update, products_at, sparse_products
from .settings import Settings
from .stretch import LOOKS, Prepared, Stretch

__all__ = ["LoneLinear", "sparse_backward_linear"]

# Multiplications of one product below which torch's own node is faster than one written in Python, whatever it saves.
_LEAST_WORK = 1 << 22
_MOST_UNITS = 1 << 32  # of a batch, for the kernels


class LoneLinear(Stretch):
    """x ↦ W x + b of one module."""

    def __init__(self, module: nn.Linear, settings: Settings) -> None:
        super().__init__((), (module,), settings)
        self.gradient_density = 1.0  # of the last ∂L/∂out that was looked at
        self._gradient_calls = 0
        self.measured = settings.adaptive  # whether a clock may decide by whom the forward is computed

    def run(self, h: Tensor, backend: Backend) -> Tensor | None:
        """The output, or None where torch is to run the module."""
        out = super().run(h, backend)
        return self._run_dense(h) if out is None else out

    def _limit(self, prepared: Prepared, batch: int, training: bool) -> float:
        # Most Linears read no zeros at all: without a measurement it takes some of them to leave torch.
        return super()._limit(prepared, batch, training) if self.settings.adaptive else crossover.fixed_limit()

    def _run_dense(self, x: Tensor) -> Tensor | None:
        """The forward as torch has it, before a backward that may leave out zeros; None where that cannot pay."""
        prepared = self._prepared
        if prepared is None or x.shape[-1] != prepared.inputs or not prepared.trains or not torch.is_grad_enabled():
            return None
        weight, *bias = prepared.parameters
        rows = x.reshape(-1, prepared.inputs)
        if not (x.requires_grad or weight.requires_grad) or not self._may_pay(rows.shape[0], prepared):
            return None
        out: Tensor = LinearFunction.apply(rows, weight, bias[0] if bias else None, self, None)  # type: ignore[no-untyped-call]
        return out if x.dim() == 2 else out.reshape(*x.shape[:-1], prepared.outputs)

    def run_at(self, active: Tensor, x: Tensor, backend: Backend) -> tuple[Tensor, int] | None:
        """W x + b where `active` is not 0, and 0 elsewhere, and how many entries that are; None where torch is to run.

        For who multiplies it with `active`, and shows it to nobody else.
        """
        prepared = self._prepare(backend)
        if not prepared.trains or x.shape[-1] != prepared.inputs or active.shape[-1] != prepared.outputs:
            return None
        weight, *bias = prepared.parameters
        rows, at = x.reshape(-1, prepared.inputs), active.detach().reshape(-1, prepared.outputs)
        if not is_row_major(weight) or not 0 < at.numel() < _MOST_UNITS:
            return None
        if not _all_finite([rows, weight, *bias]):
            return None
        only = _Only(at, backend)
        out: Tensor = LinearFunction.apply(rows, weight, bias[0] if bias else None, self, only)  # type: ignore[no-untyped-call]
        return out.reshape(active.shape), only.count

    def _may_pay(self, batch: int, prepared: Prepared) -> bool:
        limit = self.gradient_limit(batch)
        if limit <= 0.0 or batch * prepared.outputs >= _MOST_UNITS:
            return False
        self._gradient_calls += 1
        return (
            self.gradient_density <= limit
            or self._gradient_calls % LOOKS == 1
            # Checkpointing runs the same input twice and must find the same node.
            or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        )

    def limit_of(self, batch: int, backend: Backend) -> float:
        """The density up to which a product with the zeros of ∂L/∂out pays; 0 where it never does, or cannot run."""
        return self.gradient_limit(batch) if self._prepare(backend).trains else 0.0

    def gradient_limit(self, batch: int) -> float:
        """The density of ∂L/∂out up to which its zeros pay; 0 where they never do."""
        prepared = self._prepared
        assert prepared is not None
        work = batch * prepared.inputs * prepared.outputs
        if work < _LEAST_WORK and crossover.forced() is None:
            return 0.0
        if not self.settings.adaptive:
            return crossover.fixed_limit()
        return crossover.limit(prepared.widest, batch, True, not prepared.turns, by_gradient=True)


class _Only:
    """Entries of an output to which it is limited: where `at` is not 0."""

    def __init__(self, at: Tensor, backend: Backend) -> None:
        self._at, self._backend, self.count = at, backend, 0

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out, self.count = products_at(self._at, x.detach(), weight, self._backend)
        return out if bias is None else out.add_(bias).masked_fill_(self._at == 0, 0.0)


class _Always:
    """The owner of a Linear that is no module: zeros are left out whatever it costs."""

    gradient_density, measured = 0.0, False

    def gradient_limit(self, batch: int) -> float:
        return 1.0


def sparse_backward_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b by torch, with a backward that leaves out the zeros of ∂L/∂out where the kernels can run it."""
    parameters = [weight] if bias is None else [weight, bias]
    backend = None if torch.compiler.is_compiling() else backend_of(x)
    plain = all(is_plain(p) and has_memory(p) for p in parameters)
    if backend is None or not plain or not backend.takes_parameters([weight], [bias], training=True):
        return F.linear(x, weight, bias)
    out: Tensor = LinearFunction.apply(x.reshape(-1, x.shape[-1]), weight, bias, _Always(), None)  # type: ignore[no-untyped-call]
    return out.reshape(*x.shape[:-1], out.shape[-1])


class LinearFunction(torch.autograd.Function):
    """(x, W, b, owner, only) ↦ x Wᵀ + b on matrices; the backward leaves out the zeros of ∂L/∂out where that pays."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, owner: LoneLinear | _Always, only: _Only | None
    ) -> Tensor:
        need_x, need_weight, *_ = ctx.needs_input_grad
        # Not more than F.linear keeps: whatever it does not keep may be changed before the backward.
        ctx.save_for_backward(x if need_weight else None, weight if need_x else None)
        ctx.owner, ctx.limit, ctx.rows_first = owner, owner.gradient_limit(x.shape[0]), is_row_major(weight)
        # For `step`, which sets `fused` on the node of a backward that it opens, where it may change the weight.
        ctx.fused, ctx.weight, ctx.memories = None, weight, (storage_address(weight),)
        if only is not None:
            return only.linear(x, weight, bias)
        return dense_linear(x, weight, bias) if owner.measured else F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,), (x, weight) = grads, ctx.saved_tensors
        need_x, need_weight, need_bias, *_ = ctx.needs_input_grad
        x, weight = x if need_weight else None, weight if need_x else None
        grad_x = grad_weight = grad_bias = None
        backend = _backend_of(ctx.owner, ctx.limit, grad, x, weight)
        if backend is not None:
            # Without ∂L/∂x the kernels have no copy of a weight that lies the other way.
            fuses = ctx.fused is not None and need_weight and (need_x or is_row_major(ctx.weight))
            ask = partial(_update, ctx.fused, ctx.weight, ctx.memories) if fuses else None
            found = sparse_products(backend, grad, x, weight, ask, want_bias=need_bias)
            grad_x, grad_weight, grad_bias, active = found
            ctx.owner.gradient_density = active / max(grad.numel(), 1)
            if fuses and grad_weight is None:
                ctx.fused.done()
        else:
            # With create_graph=True these are differentiated again.
            if weight is not None:
                grad_x = grad.mm(weight)
            if x is not None:
                grad_weight = grad.t().mm(x) if ctx.rows_first else x.t().mm(grad).t()
            grad_bias = grad.sum(0) if need_bias else None
        return grad_x, grad_weight, grad_bias, None, None


def _update(fused: FusedUpdate, weight: Tensor, memories: tuple[int, ...]) -> Update | None:
    """The step that the weight may take inside this backward."""
    if storage_address(weight) != memories[0]:  # somebody has put it elsewhere since the forward
        return None
    for _, rule, states in fused.updates([weight], memories):
        return Update(weight, rule, states)
    return None


def _backend_of(
    owner: LoneLinear | _Always, limit: float, grad: Tensor, x: Tensor | None, weight: Tensor | None
) -> Backend | None:
    """Who runs the products by the zeros of this gradient; None where they are to be dense."""
    read = [t for t in (x, weight) if t is not None]
    if not read or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    backend = backend_of(grad) if has_memory(grad) else None
    if backend is not None and owner.gradient_density > limit:
        owner.gradient_density = float(torch.count_nonzero(grad)) / max(grad.numel(), 1)
    if backend is None or owner.gradient_density > limit:
        return None
    return backend if _all_finite(read) else None


def _all_finite(factors: Sequence[Tensor]) -> bool:
    """Dense arithmetic makes NaN of 0 · NaN and 0 · ∞, so zeros are left out only where there is neither."""
    # A sum over all entries is finite only where each is.
    return all(bool(t.sum().isfinite()) for t in factors)
