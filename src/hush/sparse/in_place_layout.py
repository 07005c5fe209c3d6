"""Lays a model's weights out in place, as the kernels read them.

A Linear that leaves out zeros of what it reads wants the weights of one input together, input-major. One that reads no
zeros but leaves out those of ∂L/∂out, as the first of a feed-forward block does, wants the weights of one output
together, which is torch's own layout. Which of the two a Linear that stands by itself will be is not known before it
runs: one that widens (out > in) is taken for the first of a block. Whatever is guessed wrong is turned around at each
call, and right all the same. In fused residual blocks it is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import nn

from .block_reader import looks_residual, read_block
from .layout import on_large_pages, storage_address
from .modules import all_stretches
from .own_forwards import is_sparse_container, is_sparse_linear
from .sequence_plan import children_in_order

__all__ = ["inner_linears", "lay_out", "sparse_linears", "widening_linears"]


def sparse_linears(model: nn.Module) -> list[nn.Linear]:
    """The Linears of a model that are accelerated."""
    return [m for m in model.modules() if isinstance(m, nn.Linear) and is_sparse_linear(m)]


def widening_linears(model: nn.Module) -> list[nn.Linear]:
    """Those that have more outputs than inputs and stand in no stretch."""
    fused = {id(linear) for stretch in all_stretches(model) for linear in getattr(stretch, "linears", ())}
    return [m for m in sparse_linears(model) if id(m) not in fused and m.weight.dim() == 2 and _widens(m)]


def inner_linears(model: nn.Module) -> list[nn.Linear]:
    """The first of the two matrices of residual blocks that are fused, or will be as soon as nobody listens to them:
    hooks of hush.hold come and go."""
    blocks = [child for m in model.modules() if is_sparse_container(m) for child in children_in_order(m)]
    readings = [read_block(block, listened=True) for block in blocks if looks_residual(block)]
    inner = [reading.inner for reading in readings if not isinstance(reading, str)]
    return [m for m in inner if isinstance(m, nn.Linear)]


def _widens(linear: nn.Linear) -> bool:
    outputs, inputs = linear.weight.shape
    return bool(outputs > inputs)


@torch.no_grad()
def lay_out(model: nn.Module, row_major: Iterable[nn.Linear] = ()) -> None:
    """Weights of float32 Linears in one stretch of memory, input-major but for those given; and their gradients too.

    A weight whose memory another parameter or buffer reads too stays where it is.
    """
    rows = {id(m.weight) for m in row_major}
    readers = Counter(storage_address(t) for t in {id(t): t for t in (*model.parameters(), *model.buffers())}.values())
    weights = {
        id(m.weight): m.weight
        for m in sparse_linears(model)
        if m.weight.dtype == torch.float32 and m.weight.dim() == 2 and readers[storage_address(m.weight)] == 1
    }
    # Row by row is input-major to the turned matrix.
    placed = on_large_pages([w.detach().t() if key in rows else w.detach() for key, w in weights.items()])
    for (key, weight), data in zip(weights.items(), placed, strict=True):
        gradient, weight.grad = weight.grad, None
        weight.data = data.t() if key in rows else data
        if gradient is not None:
            weight.grad = torch.empty_like(weight).copy_(gradient)
