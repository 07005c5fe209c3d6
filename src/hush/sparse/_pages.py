"""Weights side by side on large pages: rows are visited in no order, and 4 KB pages cost a search for most of them."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from . import _engine

__all__ = ["lay_out"]

_PAGE = 2 << 20
_LINE = 64


def lay_out(weights: Sequence[Tensor]) -> list[Tensor]:
    """Input-major copies of float32 CPU matrices in one stretch of memory, each a storage of its own.

    The system is asked for large pages (Linux, where they are allowed) and may decline. What is too small to fill one,
    or is no float32 on the CPU, is laid out where torch likes.
    """
    plain = all(w.device.type == "cpu" and w.dtype == torch.float32 for w in weights)
    room = [-(-w.numel() * 4 // _LINE) * _LINE for w in weights]
    if not plain or sum(room) < _PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return [_engine.input_major(w) for w in weights]
    memory = mmap.mmap(-1, sum(room) + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    at = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % _PAGE
    placed = []
    for w, size in zip(weights, room, strict=True):
        rows, columns = w.shape
        if w.numel():
            # The tensor keeps the whole stretch alive; its storage is only its own part of it.
            flat = torch.frombuffer(memory, dtype=torch.float32, count=w.numel(), offset=at)
            placed.append(flat.view(columns, rows).t().copy_(w))
        else:
            placed.append(_engine.input_major(w))
        at += size
    return placed
