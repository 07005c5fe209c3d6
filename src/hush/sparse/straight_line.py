"""Forwards that can be read off exactly: straight lines of calls of the module's own children, sums and products.

A forward is run once on symbols, but only after its bytecode has shown that it does nothing a symbol could not see: no
branch, no loop, no global, no closure, nothing stored anywhere but in its own variables. What it computes then depends
on its input and on attributes of the module alone, and the attributes it asked for are known.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn

__all__ = ["SymbolicSelf", "Unreadable", "child_named", "code_of", "is_straight_line", "run_on_symbols"]

# Of every Python from 3.11 on. What is not here may be harmless, but is not known to be.
_HARMLESS = {
    "BINARY_OP",
    "CACHE",
    "CALL",
    "COPY",
    "EXTENDED_ARG",
    "LOAD_ATTR",
    "LOAD_CONST",
    "LOAD_FAST",
    "LOAD_FAST_BORROW",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
    "LOAD_FAST_LOAD_FAST",
    "LOAD_METHOD",
    "LOAD_SMALL_INT",
    "NOP",
    "NOT_TAKEN",
    "POP_TOP",
    "PRECALL",
    "PUSH_NULL",
    "RESUME",
    "RETURN_VALUE",
    "STORE_FAST",
    "STORE_FAST_LOAD_FAST",
    "STORE_FAST_STORE_FAST",
    "SWAP",
}
_REASONS = {
    "LOAD_GLOBAL": "reads something outside the module",
    "LOAD_DEREF": "reads something outside the module",
    "STORE_ATTR": "changes the module",
    "FOR_ITER": "has a loop",
}
_PLAIN_CALLS = ("__call__", "_call_impl", "_wrapped_call_impl", "__getattr__", "__getattribute__")


class Unreadable(Exception):  # noqa: N818 - a reason, not an error
    """Why a forward cannot be read, as the end of a sentence about it."""


class SymbolicSelf:
    """The `self` of a forward that runs on symbols: `look(name)` says what an attribute stands for."""

    def __init__(self, look: Callable[[str], Any]) -> None:
        object.__setattr__(self, "_look", look)

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self, "_look")(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise Unreadable("changes the module")


def code_of(module: nn.Module) -> types.CodeType:
    """The code of its class's forward, which is a straight line.

    Raises:
        Unreadable: if it is not.
    """
    kind = type(module)
    if any(getattr(kind, name) is not getattr(nn.Module, name) for name in _PLAIN_CALLS):
        raise Unreadable("is called or read in a way of its own")
    forward = kind.forward
    if not isinstance(forward, types.FunctionType):
        raise Unreadable("is no plain function")
    reason = _why_not(forward.__code__)
    if reason is not None:
        raise Unreadable(reason)
    return forward.__code__


def is_straight_line(module: nn.Module) -> bool:
    try:
        code_of(module)
    except Unreadable:
        return False
    return True


@cache
def _why_not(code: types.CodeType) -> str | None:
    unusual = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
    takes_one = code.co_argcount == 2 and not code.co_kwonlyargcount and not code.co_flags & unusual
    if not takes_one:
        return "takes more than one input"
    jumps = {*dis.hasjrel, *dis.hasjabs}
    for instruction in dis.get_instructions(code):
        if instruction.opcode in jumps and instruction.opname not in _REASONS:
            return "has a branch"
        if instruction.opname not in _HARMLESS:
            return _REASONS.get(instruction.opname, "does more than call its children, add and multiply")
    return None


def child_named(module: nn.Module, name: str) -> nn.Module:
    """What `self.name` is in the module's forward.

    Raises:
        Unreadable: if it is no child.
    """
    child = module._modules.get(name)
    if child is None or hasattr(type(module), name) or name in module.__dict__:
        raise Unreadable(f"reads {name}, which is no child")
    return child


def run_on_symbols(module: nn.Module, look: Callable[[str], Any], x: Any) -> Any:
    """What the forward gives for the symbol x.

    Raises:
        Unreadable: if it does with a symbol what that does not know.
    """
    code_of(module)
    try:
        return type(module).forward(SymbolicSelf(look), x)
    except (TypeError, AttributeError) as problem:
        raise Unreadable(f"does something else with its tensors ({problem})") from None
