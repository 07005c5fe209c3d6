"""How weights lie in memory: row by row, as torch has them, or input-major, as the kernels read them.

An (out, in) weight is input-major when its strides are (1, out): the weights of one input lie together.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["input_major", "is_input_major", "is_row_major", "on_large_pages", "storage_address"]

_PAGE = 2 << 20
_LINE = 64


def is_input_major(weight: Tensor) -> bool:
    rows, columns = weight.shape
    return (rows <= 1 or weight.stride(0) == 1) and (columns <= 1 or weight.stride(1) == rows)


def is_row_major(weight: Tensor) -> bool:
    return weight.is_contiguous()


def storage_address(tensor: Tensor) -> int:
    """The same for tensors that share their memory, and different for others."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else id(tensor)


def input_major(weight: Tensor) -> Tensor:
    """The same (out, in) values with strides (1, out)."""
    return weight if is_input_major(weight) else weight.t().contiguous().t()


def on_large_pages(weights: Sequence[Tensor]) -> list[Tensor]:
    """Input-major copies of float32 CPU matrices in one stretch of memory, each a storage of its own.

    Rows are visited in no order, and 4 KB pages cost a search for most of them. The system is asked for large pages
    (Linux, where they are allowed) and may decline. What is too small to fill one, or is no float32 on the CPU, is laid
    out where torch likes.
    """
    plain = all(w.device.type == "cpu" and w.dtype == torch.float32 for w in weights)
    room = [-(-w.numel() * 4 // _LINE) * _LINE for w in weights]
    if not plain or sum(room) < _PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return [w.detach().clone() if is_input_major(w) else input_major(w.detach()) for w in weights]
    memory = mmap.mmap(-1, sum(room) + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    at = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % _PAGE
    placed = []
    for w, size in zip(weights, room, strict=True):
        rows, columns = w.shape
        if w.numel():
            # The tensor keeps the whole stretch alive; its storage is only its own part of it.
            flat = torch.frombuffer(memory, dtype=torch.float32, count=w.numel(), offset=at)
            placed.append(flat.view(columns, rows).t().copy_(w.detach()))
        else:
            placed.append(input_major(w.detach()))
        at += size
    return placed
