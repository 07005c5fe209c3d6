"""How many multiplications and additions a network's Linears and convolutions need, and what zeros leave of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hush.nn.models.transformers import GatedFeedForward

__all__ = ["Work", "work_of"]

_READS_ZEROS = 0.9  # a layer whose input is less dense than this is counted by what it reads


class Work(NamedTuple):
    """Floating-point operations of one pass through all Linears and convolutions."""

    dense: float
    useful: float

    @property
    def bound(self) -> float:
        """What counting zeros alone would promise: 1/(1 − s) where every product has them."""
        return self.dense / self.useful if self.useful else 1.0


def work_of(model: nn.Module, x: Tensor, training: bool) -> Work:
    """Measured on one batch.

    A layer that reads zeros leaves them out of its forward and of both products of its backward. One that does not
    computes all of its forward, and leaves the zeros of ∂L/∂out out of the backward. `up` of a gated block is computed
    where what `down` reads is not zero.
    """
    dense = useful = 0.0
    seen = _seen(model, x, training)
    behind_gate = {id(m.up): m.down for m in model.modules() if isinstance(m, GatedFeedForward)}
    reads = {id(layer): _density(read) for layer, read, _ in seen}
    for layer, _, out in seen:
        weights, gradient = float(layer.weight.numel()), out.grad
        # Samples, tokens or pixels: how often every weight is used, but for those that meet a border.
        rows = out.numel() / layer.weight.shape[0]
        density, behind = reads[id(layer)], _density(gradient) if gradient is not None else 1.0
        computed = reads[id(behind_gate[id(layer)])] if id(layer) in behind_gate else density
        backward = 4.0 if training else 0.0
        dense += (2.0 + backward) * rows * weights
        useful += (2.0 * computed + backward * (density if density < _READS_ZEROS else behind)) * rows * weights
    return Work(dense, useful)


def _seen(model: nn.Module, x: Tensor, training: bool) -> list[tuple[nn.Linear | nn.Conv2d, Tensor, Tensor]]:
    """Of each call of a layer what it reads and gives out; in training its output has a gradient."""
    found: list[tuple[nn.Linear | nn.Conv2d, Tensor, Tensor]] = []

    def see(module: nn.Module, given: Any, out: Tensor) -> None:
        assert isinstance(module, nn.Linear | nn.Conv2d)
        if training:
            out.retain_grad()
        found.append((module, given[0].detach(), out))

    handles = [m.register_forward_hook(see) for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    try:
        with torch.set_grad_enabled(training):
            out = model(x)
            if training:
                # A gradient that is 1 everywhere might cancel in sums; this one is zero nowhere by chance.
                weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
                wanted = [p for p in model.parameters() if p.requires_grad]
                torch.autograd.backward((out * weights).sum(), inputs=wanted)
    finally:
        for handle in handles:
            handle.remove()
        model.zero_grad()
    return found


def _density(x: Tensor) -> float:
    return float(torch.count_nonzero(x)) / max(x.numel(), 1)
