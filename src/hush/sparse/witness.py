"""A look at some modules, and whether they are still what was seen.

Asked before each call, so the looking is done in C++ (`native/witness.h`): 200 modules take about 20 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hush.nn.centering.centered_layer import centered_layer_of

from . import _native

__all__ = ["Witness", "has_global_hooks", "has_hooks"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_TENSOR = torch._C.TensorBase
_ASKED = (_TENSOR.data_ptr, _TENSOR.numel, _TENSOR.stride, _TENSOR._version)
_GLOBAL_HOOKS: list[dict[Any, Any]] = [
    nn.modules.module._global_forward_hooks,
    nn.modules.module._global_forward_pre_hooks,
    nn.modules.module._global_backward_hooks,
    nn.modules.module._global_backward_pre_hooks,
]


def has_hooks(module: nn.Module) -> bool:
    return any(module.__dict__[name] for name in _HOOKS)


def has_global_hooks() -> bool:
    return any(_GLOBAL_HOOKS)


class Witness:
    """Collects what must stay as it is; `holds` says whether it has."""

    def __init__(self) -> None:
        self._dicts: list[dict[Any, Any]] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._children: list[Any] = []
        self._orders: list[list[Any]] = []
        self._objects: list[Any] = []
        self._types: list[type] = []
        self._hooks: list[Any] = []
        self._filled: list[bool] = []
        self._tensors: list[Tensor] = []
        self._addresses: list[int] = []
        self._forms: list[tuple[int, tuple[int, ...]] | None] = []  # None for vectors and single numbers
        self._versions: list[int] = []  # −1 where none is looked at
        self._dict_versions: _native.DictVersions | None = None

    def entry(self, owner: dict[Any, Any], key: Any) -> None:
        """owner[key] stays the same object, or stays missing."""
        self._dicts.append(owner)
        self._keys.append(key)
        self._values.append(owner.get(key, Ellipsis))

    def children(self, container: nn.Module) -> None:
        """The container has the same children in the same order."""
        self.entry(container.__dict__, "_modules")
        self._children.append(container._modules)
        self._orders.append(list(container._modules.values()))

    def module(self, module: nn.Module) -> None:
        """The module keeps its class and its forward, and as many or as few hooks as it has."""
        self._objects.append(module)
        self._types.append(type(module))
        self.entry(module.__dict__, "forward")
        for name in _HOOKS:
            self.entry(module.__dict__, name)
            self._hooks.append(module.__dict__[name])
            self._filled.append(bool(module.__dict__[name]))
        if centered_layer_of(module) is not None:
            # The one hook that the kernels know: there must be this one and no other.
            self._children.append(module.__dict__["_forward_hooks"])
            self._orders.append(list(module.__dict__["_forward_hooks"].values()))

    def memory(self, tensors: Sequence[Tensor], *, values: bool = False) -> None:
        """The tensors lie where and as they do and, with `values`, nobody has changed them in place.

        What is written through `.data` does not count as a change: torch keeps no record of it.
        """
        self._tensors += tensors
        self._addresses += [t.data_ptr() for t in tensors]
        self._forms += [(t.numel(), t.stride()) if t.dim() > 1 else None for t in tensors]
        self._versions += [t._version if values and not t.is_inference() else -1 for t in tensors]

    def holds(self) -> bool:
        if self._dict_versions is None:
            # Every dictionary that is looked at, once.
            self._looked_at = list({id(d): d for d in (*self._dicts, *self._children, *self._hooks)}.values())
            self._dict_versions = _native.DictVersions(self._looked_at)
        nothing: list[Any] = []
        if self._dict_versions.same():
            dicts = keys = values = children = orders = hooks = filled = nothing
        else:
            dicts, keys, values = self._dicts, self._keys, self._values
            children, orders, hooks, filled = self._children, self._orders, self._hooks, self._filled
        holds = _native.unchanged(
            dicts, keys, values, children, orders, self._objects, self._types, hooks, filled, self._tensors,
            self._addresses, self._forms, self._versions, *_ASKED,
        )  # fmt: skip
        if holds and dicts is not nothing:
            self._dict_versions.refresh()
        return holds
