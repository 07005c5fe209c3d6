"""Whether anybody sees the gradient at the zeros of a tensor x that a Linear reads.

Where x came out of an activation whose slope is 0 wherever it is 0, that activation drops ∂L/∂x at x's zeros, so they
need not be computed: unless somebody looks at ∂L/∂x itself. Who wants to do so holds x or its node, or has hung a hook
on one of them. In a gated block x is a product, φ(g) · u, and its zeros are those of φ(g): there ∂L/∂u is 0 and φ drops
the rest, if nobody looks at the gradient of φ(g) either. That the zeros of x are those of φ(g) is looked for, or
counted: who makes the product and knows how many of φ(g) are not 0 may say so (`expect_active`).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from hush.nn.functional import drops_gradient_at_zero

__all__ = ["Sight", "expect_active"]

_EXPECTED = "hush: entries of φ(g) that are not 0"  # in the metadata of a product's node
_OWN_REFERENCES = 3  # to a node: the graph's, ours, and the argument of the question


def expect_active(product: Tensor, active: int) -> None:
    """Of a product φ(g) · u: so many entries of φ(g) are not 0."""
    node: Any = product.grad_fn
    if node is not None:
        node.metadata[_EXPECTED] = active, product._version


class Sight:
    """Asked in the backward: `is_free` is whether nobody looks."""

    def __init__(self, *looked_at: _Point, expected: int | None = None) -> None:
        self._points = looked_at
        self._expected = expected

    def count(self, active: int) -> None:
        """So many entries of x are not 0."""
        if self._expected == active:
            self._expected = None

    @classmethod
    def of(cls, x: Tensor) -> Sight | None:
        """None where all of ∂L/∂x is needed anyway."""
        if x.retains_grad or x.grad_fn is None:
            return None
        if _drops(x.grad_fn):
            return cls(_Dropped(x))
        node: Any = x.grad_fn
        expected, version = node.metadata.get(_EXPECTED, (None, 0))
        if version != x._version:  # its values have been changed since
            expected = None
        factor = _activation_in_product(x, counted=expected is not None)
        return None if factor is None else cls(_Dropped(x), _Kept(factor), expected=expected)

    def is_free(self) -> bool:
        # Fewer entries of x than of φ(g): some are 0 by u alone.
        return self._expected is None and all(point.is_free() for point in self._points)


def _drops(node: Any) -> bool:
    return node is not None and (node.name() == "ReluBackward0" or drops_gradient_at_zero(node))


@torch.no_grad()
def _activation_in_product(x: Tensor, counted: bool) -> Tensor | None:
    """The factor of x = a · u whose activation drops what x's zeros would get; with `counted` they will be counted."""
    node: Any = x.grad_fn
    if node.name() != "MulBackward0" or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return None
    for (origin, _), name in zip(node.next_functions, ("_saved_self", "_saved_other"), strict=True):
        if not _drops(origin):
            continue
        try:
            factor = getattr(node, name)  # None where u has no gradient
        except RuntimeError:  # changed in place since; the backward will say so
            return None
        if not isinstance(factor, Tensor) or factor.grad_fn is not origin or factor.retains_grad:
            continue
        # A zero of u alone is none of φ's: ∂L/∂u is needed there.
        if factor.shape == x.shape and (counted or not bool(((x == 0) & (factor != 0)).any())):
            return factor
    return None


class _Point:
    """A tensor whose gradient might be looked at, and its node."""

    def __init__(self, x: Tensor) -> None:
        self._node: Any = x.grad_fn
        assert self._node is not None
        registers = (x.register_hook, self._node.register_prehook, self._node.register_hook)
        self._hooks = [_hooks_of(register) for register in registers]

    def is_free(self) -> bool:
        # A gradient edge, or whoever took x.grad_fn, holds the node as well.
        return not any(self._hooks) and not self._is_held() and sys.getrefcount(self._node) <= _OWN_REFERENCES

    def _is_held(self) -> bool:
        raise NotImplementedError


class _Dropped(_Point):
    """One that only an onlooker keeps alive until the backward."""

    def __init__(self, x: Tensor) -> None:
        super().__init__(x)
        self._x = weakref.ref(x)

    def _is_held(self) -> bool:
        return self._x() is not None


class _Kept(_Point):
    """One that the graph keeps for its own backward: an onlooker is one reference more."""

    def __init__(self, x: Tensor) -> None:
        super().__init__(x)
        self._x = x

    def _is_held(self) -> bool:
        return sys.getrefcount(self._x) > _references_of_the_graph()


@cache
def _references_of_the_graph() -> int:
    """What `sys.getrefcount` says of a tensor that the graph keeps and one attribute holds; torch has changed it."""
    with torch.enable_grad():
        ones = torch.ones(1, dtype=torch.float32, device="cpu", requires_grad=True)
        node: Any = (torch.relu(ones) * (ones * 1.0)).grad_fn
    holder = [node._saved_self]
    return sys.getrefcount(holder[0])


def _hooks_of(register: Callable[[Callable[..., None]], Any]) -> Any:
    """The dictionary that every hook registered here goes into, now or later."""
    handle = register(_no_hook)
    hooks = handle.hooks_dict_ref()
    handle.remove()
    return hooks


def _no_hook(*gradients: Any) -> None:
    return None
