"""Whose forward a module has: its class's, the engine's, or somebody else's; and whether anybody listens to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from torch import nn

from .witness import has_hooks

__all__ = [
    "STATE",
    "does_nothing",
    "has_own_forward",
    "is_quiet",
    "is_sparse_container",
    "is_sparse_convolution",
    "is_sparse_gated",
    "is_sparse_linear",
    "mark",
]

STATE = "_hush"  # in the __dict__ of a module with an accelerated forward; never in its state_dict
_MARK = "_hush_forward"  # on a function that `accelerate` puts in place of a class's forward
_F = TypeVar("_F", bound=Callable[..., Any])


def mark(function: _F, name: Literal["linear", "sequential", "convolution", "gated", "line"]) -> _F:
    """This function is the engine's forward for such a module."""
    setattr(function, _MARK, name)
    return function


def is_sparse_linear(module: nn.Module | None) -> bool:
    return type(module) is nn.Linear and getattr(_function(module), _MARK, None) == "linear"


def is_sparse_convolution(module: nn.Module | None) -> bool:
    return type(module) is nn.Conv2d and getattr(_function(module), _MARK, None) == "convolution"


def is_sparse_container(module: nn.Module) -> bool:
    """An nn.Sequential, or a module that is one written out."""
    name = getattr(_function(module), _MARK, None)
    return name == "line" or (name == "sequential" and type(module) is nn.Sequential)


def is_sparse_gated(module: nn.Module) -> bool:
    return getattr(_function(module), _MARK, None) == "gated"


def has_own_forward(module: nn.Module) -> bool:
    """Whether somebody has replaced the forward of this one module, which is neither its class's nor ours."""
    own = module.__dict__.get("forward")
    function = _function(module)
    return own is not None and function is not type(module).forward and not hasattr(function, _MARK)


def _function(module: nn.Module) -> Any:
    return getattr(module.__dict__.get("forward"), "__func__", None)


def is_quiet(module: nn.Module) -> bool:
    """Its class's own forward, and nobody listening."""
    return not has_own_forward(module) and not has_hooks(module)


def does_nothing(module: nn.Module) -> bool:
    if module is None or not is_quiet(module):
        return False
    return type(module) is nn.Identity or (type(module) is nn.Dropout and (not module.training or module.p == 0.0))
