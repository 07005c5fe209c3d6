"""The forwards that nn.Linear and nn.Sequential have while a model is accelerated.

They stand in the module's own __dict__, so its class, its parameters and its children stay what they are. They compute
nothing of their own: at each call they look at what is there now, run a stretch on a backend where that gives the same,
and the class's forward everywhere else.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hush.nn.centering.centered_layer import centered_layer_of

from .activation import activation_of
from .backend import Backend
from .conditions import backend_of, is_patched
from .operators import traced_chain
from .settings import Settings
from .stretch import Stretch
from .witness import Witness, has_global_hooks, has_hooks

__all__ = [
    "accelerate_module",
    "decelerate_module",
    "has_own_forward",
    "is_sparse_linear",
    "is_sparse_sequential",
    "stretches_of",
]

_STATE = "_hush"  # in the module's __dict__, beside torch's own private entries; never in its state_dict


# Both are written so that torch.jit.script, which compiles a forward from its source, sees torch's operations only.
# They are called "forward" because that is the name under which a bound method is pickled: a model that was accelerated
# comes out of a file with its class's forward.


def _linear_forward(self: nn.Linear, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return F.linear(input, self.weight, self.bias)
    else:  # noqa: RET505 - the script compiler looks at one branch only
        return _run_linear(self, input)


def _sequential_forward(self: nn.Sequential, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        for module in self:
            input = module(input)  # noqa: A001
        return input
    else:  # noqa: RET505
        return _run_sequential(self, input)


_linear_forward.__name__ = _sequential_forward.__name__ = "forward"


def accelerate_module(module: nn.Module, settings: Settings) -> None:
    """Give an nn.Linear or nn.Sequential its accelerated forward."""
    if isinstance(module, nn.Linear):
        module.__dict__[_STATE] = Stretch((), (module,), settings)
        module.__dict__["forward"] = types.MethodType(_linear_forward, module)
    else:
        module.__dict__[_STATE] = Sequence(module, settings)  # type: ignore[arg-type]
        module.__dict__["forward"] = types.MethodType(_sequential_forward, module)


def decelerate_module(module: nn.Module) -> Settings | None:
    """Take it away again; the settings it had, or None where it had none."""
    if is_sparse_linear(module) or is_sparse_sequential(module) or not has_own_forward(module):
        module.__dict__.pop("forward", None)
    state = module.__dict__.pop(_STATE, None)
    return None if state is None else state.settings


def is_sparse_linear(module: nn.Module | None) -> bool:
    return type(module) is nn.Linear and _function(module) is _linear_forward


def is_sparse_sequential(module: nn.Module) -> bool:
    return type(module) is nn.Sequential and _function(module) is _sequential_forward


def has_own_forward(module: nn.Module) -> bool:
    """Whether somebody has replaced the forward of this one module, which is neither its class's nor ours."""
    own = module.__dict__.get("forward")
    return own is not None and _function(module) not in (type(module).forward, _linear_forward, _sequential_forward)


def _function(module: nn.Module) -> Any:
    return getattr(module.__dict__.get("forward"), "__func__", None)


def _run_linear(module: nn.Linear, x: Tensor) -> Tensor:
    # A parametrisation derives a class of its own, in which `weight` is computed.
    if type(module) is nn.Linear and not torch.compiler.is_compiling() and not is_patched():
        backend = backend_of(x)
        if backend is not None:
            stretch: Stretch = module.__dict__[_STATE]
            out = stretch.run(x, backend)
            if out is not None:
                return out
    return type(module).forward(module, x)


class Sequence:
    """The children of a Sequential, in the order in which they run, with its stretches in place of their members."""

    def __init__(self, container: nn.Sequential, settings: Settings) -> None:
        self.container, self.settings = container, settings
        self._witness: Witness | None = None
        self._steps: list[nn.Module | _Fused] = []

    def __getstate__(self) -> dict[str, Any]:
        # A copy looks at its own children.
        return {**self.__dict__, "_witness": None, "_steps": []}

    def steps(self) -> list[nn.Module | _Fused]:
        if self._witness is None or not self._witness.holds():
            self._witness, self._steps = _plan(self.container, self.settings)
        return self._steps


class _Fused:
    """A stretch, and the children it stands for."""

    def __init__(self, stretch: Stretch, members: list[nn.Module]) -> None:
        self.stretch, self.members = stretch, members

    def run(self, h: Tensor, backend: Backend | None) -> Tensor:
        out = None if backend is None else self.stretch.run(h, backend)
        if out is None:
            out = h
            for module in self.members:
                out = module(out)
        return out


def _run_sequential(container: nn.Sequential, x: Tensor) -> Tensor:
    if type(container) is not nn.Sequential or has_global_hooks() or is_patched() or torch.compiler.is_exporting():
        out: Tensor = type(container).forward(container, x)
        return out
    if torch.compiler.is_compiling():
        return _run_compiled(container, x)
    sequence: Sequence = container.__dict__[_STATE]
    for step in sequence.steps():
        x = step.run(x, backend_of(x)) if type(step) is _Fused else step(x)  # type: ignore[operator]
    return x


def _plan(container: nn.Sequential, settings: Settings) -> tuple[Witness, list[nn.Module | _Fused]]:
    """What runs now, and what it depends on."""
    witness = Witness()
    witness.children(container)
    children = list(container._modules.values())
    for child in children:
        if child is not None:
            _witness_child(witness, child)
    made = _fuse(children, lambda activations, linears: Stretch(activations, linears, settings), centered=True)
    return witness, made


def _witness_child(witness: Witness, child: nn.Module) -> None:
    witness.module(child)
    if isinstance(child, nn.Dropout):
        witness.entry(child.__dict__, "training")
        witness.entry(child.__dict__, "p")
    if "inplace" in child.__dict__:
        witness.entry(child.__dict__, "inplace")


def _fuse(
    children: list[nn.Module], make: Callable[[list[nn.Module], list[nn.Module]], Stretch], *, centered: bool
) -> list[nn.Module | _Fused]:
    """Each child, or the stretch that it begins."""
    steps: list[nn.Module | _Fused] = []
    at = 0
    while at < len(children):
        activations, linears, end = _stretch_from(children, at, centered)
        if linears:
            steps.append(_Fused(make(activations, linears), children[at:end]))
            at = end
        else:
            steps.append(children[at])
            at += 1
    return steps


def _stretch_from(
    children: list[nn.Module], start: int, centered: bool
) -> tuple[list[nn.Module], list[nn.Module], int]:
    """The activations and Linears of the stretch that begins with child `start`, and where it ends.

    With `centered`, Linears may be among them whose gradients are centred.
    """
    activations: list[nn.Module] = []
    linears: list[nn.Module] = []
    end = at = start
    while True:
        activation, at = _next(children, at)
        # In place at the head, an activation would change a tensor that others may hold; further on nobody sees it.
        if not _is_activation(activation) or (not linears and getattr(activation, "inplace", False)):
            break
        linear, at = _next(children, at)
        if (
            linear is None
            or not is_sparse_linear(linear)
            or not (_is_quiet(linear) or (centered and _is_only_centered(linear)))
            or "weight" not in linear._parameters
        ):
            break
        activations.append(activation)  # type: ignore[arg-type]
        linears.append(linear)
        end = at
    return activations, linears, end


def _next(children: list[nn.Module], at: int) -> tuple[nn.Module | None, int]:
    """The next child that does anything, and the place after it."""
    while at < len(children) and _does_nothing(children[at]):
        at += 1
    return (children[at], at + 1) if at < len(children) else (None, at)


def _does_nothing(child: nn.Module) -> bool:
    if child is None or not _is_quiet(child):
        return False
    return type(child) is nn.Identity or (type(child) is nn.Dropout and (not child.training or child.p == 0.0))


def _is_activation(child: nn.Module | None) -> bool:
    return child is not None and _is_quiet(child) and activation_of(child) is not None


def _is_quiet(child: nn.Module) -> bool:
    """Its class's own forward, and nobody listening."""
    return not has_own_forward(child) and not has_hooks(child)


def _is_only_centered(linear: nn.Module) -> bool:
    """Its only hook centres the gradient, which the kernels do as well."""
    return not has_own_forward(linear) and centered_layer_of(linear) is not None


def stretches_of(container: nn.Sequential) -> list[Stretch]:
    """The stretches of an accelerated Sequential as it is now."""
    sequence: Sequence = container.__dict__[_STATE]
    return [step.stretch for step in sequence.steps() if isinstance(step, _Fused)]


def _run_compiled(container: nn.Sequential, x: Tensor) -> Tensor:
    """For torch.compile: each stretch is one operator of the graph, everything else the modules."""
    # The operator knows of no centred gradient: there the hook of the Linear is compiled, as any other.
    steps = _fuse(
        list(container), lambda activations, linears: Stretch(activations, linears, Settings()), centered=False
    )
    for step in steps:
        x = traced_chain(x, step.stretch) if isinstance(step, _Fused) else step(x)
    return x
