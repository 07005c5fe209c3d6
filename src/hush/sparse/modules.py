"""The forwards that nn.Linear, nn.Conv2d, nn.Sequential and modules whose own forward can be read have while a model
is accelerated.

They stand in the module's own __dict__, so its class, its parameters and its children stay what they are. They compute
nothing of their own: at each call they look at what is there now, run a stretch on a backend where that gives the same,
and the class's forward everywhere else.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from .conditions import backend_of, is_patched
from .convolution_stretch import ConvolutionStretch
from .gated_module import GatedModule
from .lone_linear import LoneLinear
from .operators import traced_chain
from .own_forwards import (
    STATE,
    has_own_forward,
    is_sparse_container,
    is_sparse_convolution,
    is_sparse_gated,
    is_sparse_linear,
    mark,
)
from .sequence_plan import Fused, Line, Sequence, fuse, run_steps
from .settings import Settings
from .stretch import Stretch
from .witness import has_global_hooks

__all__ = [
    "accelerate_gated",
    "accelerate_line",
    "accelerate_module",
    "all_stretches",
    "decelerate_module",
    "stretches_of",
]


# All are written so that torch.jit.script, which compiles a forward from its source, sees torch's operations only.
# They are called "forward" because that is the name under which a bound method is pickled: a model that was accelerated
# comes out of a file with its class's forward.


def _linear_forward(self: nn.Linear, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return F.linear(input, self.weight, self.bias)
    else:  # noqa: RET505 - the script compiler looks at one branch only
        return _run_alone(self, nn.Linear, input)


def _convolution_forward(self: nn.Conv2d, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        out: Tensor = self._conv_forward(input, self.weight, self.bias)
        return out
    else:  # noqa: RET505
        return _run_alone(self, nn.Conv2d, input)


def _sequential_forward(self: nn.Sequential, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        for module in self:
            input = module(input)  # noqa: A001
        return input
    else:  # noqa: RET505
        return _run_sequential(self, input)


_linear_forward.__name__ = _convolution_forward.__name__ = _sequential_forward.__name__ = "forward"
mark(_linear_forward, "linear")
mark(_convolution_forward, "convolution")
mark(_sequential_forward, "sequential")


def accelerate_module(module: nn.Module, settings: Settings) -> None:
    """Give an nn.Linear, nn.Conv2d or nn.Sequential its accelerated forward."""
    if isinstance(module, nn.Linear):
        module.__dict__[STATE] = LoneLinear(module, settings)
        module.__dict__["forward"] = types.MethodType(_linear_forward, module)
    elif isinstance(module, nn.Conv2d):
        module.__dict__[STATE] = ConvolutionStretch(None, module, settings)
        module.__dict__["forward"] = types.MethodType(_convolution_forward, module)
    else:
        module.__dict__[STATE] = Sequence(module, settings)
        module.__dict__["forward"] = types.MethodType(_sequential_forward, module)


def accelerate_gated(module: nn.Module, settings: Settings) -> None:
    """Give a module that computes φ(gate(x)) · up(x) its accelerated forward."""
    _accelerate_read(module, GatedModule(module, settings), "gated")


def accelerate_line(module: nn.Module, settings: Settings) -> None:
    """Give a module that calls its children one after another its accelerated forward."""
    _accelerate_read(module, Line(module, settings), "line")


def _accelerate_read(module: nn.Module, state: GatedModule | Line, name: Literal["gated", "line"]) -> None:
    """What the state gives, and its class's forward where that is nothing."""
    plain = type(module).forward

    # What torch.jit.script compiles is the source of the class's own forward, to which this name leads; such a forward
    # reads nothing outside of its module.
    @functools.wraps(plain)
    def forward(self: nn.Module, *arguments: Any, **named: Any) -> Any:
        if len(arguments) == 1 and not named and type(self).forward is plain and _may_run():
            out = self.__dict__[STATE].run(arguments[0])
            if out is not None:
                return out
        return type(self).forward(self, *arguments, **named)

    module.__dict__[STATE] = state
    module.__dict__["forward"] = types.MethodType(mark(forward, name), module)


def _may_run() -> bool:
    observed = torch.compiler.is_compiling() or torch.compiler.is_exporting()
    return not (observed or is_patched() or has_global_hooks())


def decelerate_module(module: nn.Module) -> Settings | None:
    """Take it away again; the settings it had, or None where it had none."""
    kinds = (is_sparse_linear, is_sparse_convolution, is_sparse_container, is_sparse_gated)
    if any(is_kind(module) for is_kind in kinds) or not has_own_forward(module):
        module.__dict__.pop("forward", None)
    state = module.__dict__.pop(STATE, None)
    return None if state is None else state.settings


def _run_alone(module: nn.Module, plain: type[nn.Module], x: Tensor) -> Tensor:
    """An nn.Linear or nn.Conv2d by itself: what its state gives, or else torch."""
    # A parametrisation derives a class of its own, in which `weight` is computed.
    if type(module) is plain and not torch.compiler.is_compiling() and not is_patched():
        backend = backend_of(x)
        if backend is not None:
            alone: LoneLinear | ConvolutionStretch = module.__dict__[STATE]
            out = alone.run(x, backend)
            if out is not None:
                return out
    result: Tensor = type(module).forward(module, x)
    return result


def _run_sequential(container: nn.Sequential, x: Tensor) -> Tensor:
    if type(container) is not nn.Sequential or has_global_hooks() or is_patched() or torch.compiler.is_exporting():
        out: Tensor = type(container).forward(container, x)
        return out
    if torch.compiler.is_compiling():
        return _run_compiled(container, x)
    sequence: Sequence = container.__dict__[STATE]
    return run_steps(sequence.steps(), x)


def all_stretches(model: nn.Module) -> list[Stretch | ConvolutionStretch]:
    """The stretches of an accelerated model as it is now."""
    return [stretch for m in model.modules() if is_sparse_container(m) for stretch in stretches_of(m)]


def stretches_of(container: nn.Module) -> list[Stretch | ConvolutionStretch]:
    """The stretches of an accelerated Sequential, or of a module that can be read as one, as it is now."""
    sequence: Sequence = container.__dict__[STATE]
    return [step.stretch for step in sequence.steps() if isinstance(step, Fused)]


def _run_compiled(container: nn.Sequential, x: Tensor) -> Tensor:
    """For torch.compile: each stretch of a chain is one operator of the graph, everything else the modules."""
    # The operator knows of no centred gradient: there the hook of the Linear is compiled, as any other.
    steps = fuse(list(container), Settings(), blocks=False, centered=False)
    for step in steps:
        if isinstance(step, Fused):
            assert isinstance(step.stretch, Stretch)  # convolutions are looked for with the blocks
            x = traced_chain(x, step.stretch)
        else:
            x = step(x)
    return x
