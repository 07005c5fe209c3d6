"""Between torch and the kernels: layouts, native chains, and the two calls."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _native
from .activation import Activation

__all__ = ["GRADIENT", "build", "chain_of", "input_major", "is_input_major", "isa", "run", "run_backward", "takes"]

GRADIENT = _native.Optimiser.make(1)  # no update: write the gradients
_KEPT = 64
_chains: OrderedDict[tuple[Any, ...], _native.Chain] = OrderedDict()
_lock = threading.Lock()


def is_input_major(weight: Tensor) -> bool:
    """Whether an (out, in) weight has strides (1, out): the weights of one input lie together."""
    rows, columns = weight.shape
    return (rows <= 1 or weight.stride(0) == 1) and (columns <= 1 or weight.stride(1) == rows)


def input_major(weight: Tensor) -> Tensor:
    """The same (out, in) values with strides (1, out)."""
    return weight if is_input_major(weight) else weight.t().contiguous().t()


def takes(h: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether the kernels run these tensors: float32 on the CPU (bfloat16 weights too, without gradients)."""
    kinds = (torch.float32, torch.bfloat16)
    plain = h.device.type == "cpu" and h.dtype == torch.float32
    return plain and all(w.device.type == "cpu" and w.dtype in kinds for w in weights)


def build(weights: Sequence[Tensor], biases: Sequence[Tensor | None], phis: Sequence[Activation]) -> _native.Chain:
    """A native chain over these tensors' memory; whoever keeps it must see that the memory stays."""
    chain = _native.Chain()
    for w, b, phi in zip(weights, biases, phis, strict=True):
        chain.add(w.detach(), None if b is None else b.detach(), int(phi.kind), phi.threshold, phi.clip)
    return chain


def chain_of(weights: Sequence[Tensor], biases: Sequence[Tensor | None], phis: Sequence[Activation]) -> _native.Chain:
    """The native chain over exactly these tensors' memory.

    Kept by address, because checking a hundred layers through DLPack would cost more than a small batch. An address
    that is reused by another tensor of the same shape is as good: it is the memory this call means.
    """
    key = tuple([w.data_ptr() for w in weights] + [0 if b is None else b.data_ptr() for b in biases]
                + [w.shape for w in weights] + list(phis) + [weights[0].dtype])  # fmt: skip
    with _lock:
        chain = _chains.get(key)
        if chain is not None:
            _chains.move_to_end(key)
            return chain
    chain = build(weights, biases, phis)
    with _lock:
        _chains[key] = chain
        while len(_chains) > _KEPT:
            _chains.popitem(last=False)
    return chain


def run(chain: _native.Chain, h: Tensor, outputs: int, save: bool) -> tuple[Tensor, Tensor | None, int]:
    """The last output, what the backward needs (None without save), and the number of active units."""
    h = h.detach()
    if h.stride(1) != 1 and h.shape[1] > 1:
        h = h.contiguous()
    out = torch.empty(h.shape[0], outputs)
    if not save:
        active = chain.infer_at(h.data_ptr(), h.stride(0), h.shape[0], out.data_ptr(), outputs, torch.get_num_threads())
        return out, None, active
    saved, active = chain.forward(h, out, save, torch.get_num_threads())
    return out, None if saved is None else torch.from_numpy(saved), active


def run_backward(
    chain: _native.Chain,
    grad: Tensor,
    saved: Tensor,
    inputs: int | None,
    wants: list[int],
    optimisers: list[_native.Optimiser],
    groups: list[int],
    addresses: list[int],
) -> Tensor | None:
    """∂L/∂h (None when inputs is), with each layer's gradients or update written behind the addresses."""
    grad = grad.detach()
    if grad.dtype != torch.float32 or (grad.stride(1) != 1 and grad.shape[1] > 1):
        grad = grad.to(torch.float32).contiguous()
    grad_h = None if inputs is None else torch.empty(grad.shape[0], inputs)
    chain.backward(saved, grad, grad_h, torch.get_num_threads(), wants, optimisers, groups, addresses)
    return grad_h


def isa() -> str:
    """The instruction set in use: avx512, avx2 or portable. HUSH_ISA forces one."""
    return _native.isa()
