"""Reads x ← x + β · linear(φ(norm(x))) off a module, with or without a Linear in front of φ, or says why it is
something else."""

from __future__ import annotations

import types
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from .activation import activation_of
from .own_forwards import does_nothing, is_quiet, is_sparse_linear
from .straight_line import Unreadable, code_of, run_on_symbols

__all__ = ["Reading", "looks_residual", "read_block"]

_NORMS = (nn.RMSNorm, nn.LayerNorm)


@dataclass(frozen=True)
class Reading:
    """A block as its forward has it now.

    Attributes:
        block: the module.
        norm: an nn.RMSNorm or nn.LayerNorm, or None.
        inner: the Linear in front of φ, or None.
        phi, linear: the others.
        scale: β as a number in the code, or the name of the block's attribute.
        touched: every module inside that runs, those that do nothing included.
        attributes: (dictionary, key) of everything that the forwards read of their modules.
        codes: the class and the code of every forward that was read, the block's own and those of modules in it.
    """

    block: nn.Module
    norm: nn.Module | None
    inner: nn.Module | None
    phi: nn.Module
    linear: nn.Module
    scale: float | str
    touched: tuple[nn.Module, ...]
    attributes: tuple[tuple[dict[str, Any], str], ...]
    codes: tuple[tuple[type[nn.Module], types.CodeType], ...]

    @property
    def linears(self) -> tuple[nn.Module, ...]:
        """In the order in which they run."""
        return (self.linear,) if self.inner is None else (self.inner, self.linear)


@dataclass(frozen=True)
class _Scale:
    """A number that a branch may be multiplied with."""

    value: float | str

    def __mul__(self, other: Any) -> Any:
        return other * self if isinstance(other, _Symbol) else NotImplemented


@dataclass(frozen=True)
class _Symbol:
    """What stands for a tensor: how far along the branch it is, and what it went through."""

    stage: str = "stream"  # → normed → hidden → active → branch → scaled → block
    norm: nn.Module | None = None
    inner: nn.Module | None = None
    phi: nn.Module | None = None
    linear: nn.Module | None = None
    scale: float | str = 1.0

    def __add__(self, other: Any) -> _Symbol:
        if not isinstance(other, _Symbol):
            raise Unreadable("adds something to a tensor that is no tensor of the block")
        for stream, branch in ((self, other), (other, self)):
            if stream.stage == "stream" and branch.stage in ("branch", "scaled"):
                return replace(branch, stage="block")
        raise Unreadable(f"adds {_WORDS[self.stage]} and {_WORDS[other.stage]}")

    def __mul__(self, other: Any) -> _Symbol:
        if isinstance(other, (float, int)) and not isinstance(other, bool):
            other = _Scale(float(other))
        if not isinstance(other, _Scale) or self.stage != "branch":
            raise Unreadable(f"multiplies {_WORDS[self.stage]}")
        return replace(self, stage="scaled", scale=other.value)

    __rmul__ = __mul__

    def __iadd__(self, other: Any) -> _Symbol:
        raise Unreadable("changes a tensor in place")

    __imul__ = __isub__ = __itruediv__ = __iadd__


_WORDS = {
    "stream": "its input",
    "normed": "the normalised input",
    "hidden": "a Linear",
    "active": "the activations",
    "branch": "the branch",
    "scaled": "the scaled branch",
    "block": "its output",
}


@dataclass
class _Reader:
    """One reading: what stands for a module's attributes, and what has been touched.

    `outer` reads the module in which this one was called, and shares what it has found. Modules that hooks listen to
    are read only if `listened` says so.
    """

    module: nn.Module
    outer: _Reader | None = None
    listened: bool = False
    touched: list[nn.Module] = field(default_factory=list)
    attributes: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    codes: list[tuple[type[nn.Module], types.CodeType]] = field(default_factory=list)

    def read(self, symbol: _Symbol) -> Any:
        """What the module's forward gives for the symbol."""
        self.codes.append((type(self.module), code_of(self.module)))
        return run_on_symbols(self.module, self.look, symbol)

    def _inside(self, module: nn.Module) -> _Reader:
        return _Reader(module, self, self.listened, self.touched, self.attributes, self.codes)

    def look(self, name: str) -> Any:
        module = self.module
        if hasattr(type(module), name):
            raise Unreadable(f"reads {name}, which its class has")
        for found in (module.__dict__, module._parameters, module._modules):
            self.attributes.append((found, name))
            value = found.get(name)
            if isinstance(value, nn.Module) and found is module._modules:
                return lambda x: self.call(value, x)
            is_number = isinstance(value, (float, int)) and not isinstance(value, bool)
            if is_number or (isinstance(value, nn.Parameter) and found is module._parameters and value.numel() == 1):
                if self.outer is not None:
                    raise Unreadable(f"has a {type(module).__name__} that reads a number, {name}")
                return _Scale(name)
            if value is not None or name in found:
                break
        raise Unreadable(f"reads {name}, which is neither a child nor a number")

    def call(self, child: nn.Module, x: object) -> _Symbol:
        """The symbol behind a child."""
        if not isinstance(x, _Symbol):
            raise Unreadable(f"gives a {type(child).__name__} something else than one tensor")
        symbol: _Symbol = x
        kind = type(child).__name__
        if not is_quiet(child) and not (self.listened and "forward" not in child.__dict__):
            raise Unreadable(f"has a {kind} with a hook or a forward of its own")
        self.touched.append(child)
        if does_nothing(child):
            return symbol
        if type(child) is nn.Sequential:
            for inner in child:
                symbol = self.call(inner, symbol)
            return symbol
        if type(child) in _NORMS and symbol.stage == "stream":
            return replace(symbol, stage="normed", norm=child)
        if symbol.stage in ("stream", "normed", "hidden") and activation_of(child) is not None:
            if getattr(child, "inplace", False) and symbol.stage == "stream":
                raise Unreadable("changes its input in place")
            return replace(symbol, stage="active", phi=child)
        if is_sparse_linear(child) and "weight" in child._parameters:
            if symbol.stage in ("stream", "normed"):
                return replace(symbol, stage="hidden", inner=child)
            if symbol.stage == "active":
                return replace(symbol, stage="branch", linear=child)
        if not _is_of_torch(child) and not is_sparse_linear(child) and activation_of(child) is None:
            found = self._inside(child).read(symbol)
            if isinstance(found, _Symbol):
                return found
        raise Unreadable(f"has a {kind} behind {_WORDS[symbol.stage]}")


def read_block(module: nn.Module, *, listened: bool = False) -> Reading | str:
    """The block, or why it cannot be read, as the end of a sentence about its forward.

    With `listened`, also where hooks listen inside: what it would be without them, not what may run now.
    """
    reader = _Reader(module, listened=listened)
    try:
        found = reader.read(_Symbol())
        if not isinstance(found, _Symbol) or found.stage != "block":
            raise Unreadable("adds no branch to its input")
        assert found.phi is not None
        assert found.linear is not None
        return Reading(
            module, found.norm, found.inner, found.phi, found.linear, found.scale, tuple(reader.touched),
            tuple(reader.attributes), tuple(reader.codes),
        )  # fmt: skip
    except Unreadable as reason:
        return str(reason)


def looks_residual(module: nn.Module) -> bool:
    """Whether it might be meant as a block: a class that is not torch's, with an activation and a Linear inside."""
    if _is_of_torch(module):
        return False
    inner = [m for m in module.modules() if m is not module]
    return any(isinstance(m, nn.Linear) for m in inner) and any(activation_of(m) is not None for m in inner)


def _is_of_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn.")
