"""When the kernels may run: never while anybody looks at, replaces or records single torch operations."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils._device import DeviceContext

from .backend import Backend, backend_for

__all__ = ["backend_of", "has_memory", "is_observed", "is_patched", "is_plain"]

_PLAIN = (Tensor, nn.Parameter)
# What the kernels stand for, as torch has it. Whoever replaces one of these wants to be called.
_STANDS_FOR = (nn.Linear.forward, nn.Sequential.forward, nn.ReLU.forward, F.linear, F.relu)


def is_patched() -> bool:
    return (nn.Linear.forward, nn.Sequential.forward, nn.ReLU.forward, F.linear, F.relu) != _STANDS_FOR


def is_observed() -> bool:
    """Transforms (torch.func, forward-mode derivatives), tracing, dispatch and function modes, autocast."""
    native = torch._C
    return (
        native._len_torch_dispatch_stack() > 0
        or native._are_functorch_transforms_active()
        or torch.is_autocast_enabled("cpu")
        or native._get_tracing_state() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or (native._len_torch_function_stack() > 0 and not _only_a_default_device())
    )


def _only_a_default_device() -> bool:
    """torch.set_default_device is a function mode too; it concerns nobody who names the device."""
    return all(isinstance(mode, DeviceContext) for mode in torch.overrides._get_current_function_mode_stack())


def is_plain(x: object) -> bool:
    """A tensor, and no subclass that gives the operations another meaning (fake, functional, distributed …)."""
    return type(x) in _PLAIN


def has_memory(x: Tensor) -> bool:
    """Not a batch of gradients (is_grads_batched), nor what a transform of torch.func has left behind: such a wrapper
    has lost what it wrapped."""
    try:
        x.data_ptr()
    except RuntimeError:
        return False
    return True


def backend_of(h: object) -> Backend | None:
    """Who runs this input; None leaves it to torch."""
    if not isinstance(h, Tensor) or not is_plain(h) or h.dim() == 0:
        return None
    backend = backend_for(h)
    return backend if backend is not None and backend.takes(h) and not is_observed() else None
