"""Run a model once and count: how often each module was called, and which activations were applied as functions.

A function that a forward calls by itself (`F.relu(x)`) is held by no attribute, so it can be neither found nor replaced
by looking at the model.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from hush.nn.activation_places import known_activation
from hush.nn.quiet_run import quietly, tensors_in
from hush.nn.swap_report import FunctionUse
from hush.nn.torch_functions import ELEMENTWISE_ACTIVATIONS

__all__ = ["OVERWROTE", "Uses", "function_uses", "inplace_matters", "watch_uses"]


OVERWROTE = (
    "Some of the activations worked in place, and changed a tensor that another layer, or a shortcut, read afterwards. "
    "hush's never do: there the values before the activation are read now."
)


class Uses(TorchFunctionMode):
    """What one run did.

    Attributes:
        calls: by module, how often it was called.
        functions: by (name of the innermost module that was running, name of the function), how often it was applied.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.calls: Counter[nn.Module] = Counter()
        self.functions: Counter[tuple[str, str]] = Counter()
        self._names = {module: name for name, module in model.named_modules()}
        self._running: list[nn.Module] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inside = self._running[-1] if self._running else None
        # What an activation module does inside is its own affair.
        if func in ELEMENTWISE_ACTIVATIONS and (inside is None or not known_activation(inside)):
            function = str(getattr(func, "__name__", func)).strip("_")
            self.functions["" if inside is None else self._names[inside], function] += 1
        return func(*args, **(kwargs or {}))

    def before(self, module: nn.Module, args: Any) -> None:
        self.calls[module] += 1
        self._running.append(module)

    def after(self, module: nn.Module, args: Any, output: Any) -> None:
        self._running.pop()


def watch_uses(model: nn.Module, example: Any) -> Uses:
    """Run `model` on `example`: a tensor, a tuple of arguments, or a dictionary of keyword arguments."""
    uses = Uses(model)
    with ExitStack() as stack:
        for module in model.modules():
            # Hooks also make an accelerated model run its plain layers, and torch's encoder layers their slow path.
            stack.callback(module.register_forward_pre_hook(uses.before).remove)
            stack.callback(module.register_forward_hook(uses.after).remove)
        stack.enter_context(uses)
        _run(model, example)
    return uses


def function_uses(model: nn.Module, uses: Uses) -> tuple[FunctionUse, ...]:
    """The activations that were applied as functions, for a report."""
    return tuple(
        FunctionUse(place, type(model.get_submodule(place)).__name__, function, calls)
        for (place, function), calls in uses.functions.items()
    )


def inplace_matters(model: nn.Module, activations: Sequence[nn.Module], example: Any) -> bool:
    """Whether the model gives out something else when these activations no longer overwrite what they read.

    It does where another layer, a shortcut for example, reads the same tensor afterwards.
    """
    before = _run(model, example)  # first of all, so that an example which does not fit fails before anything changes
    overwriting = [module for module in activations if getattr(module, "inplace", False) is True]
    if not overwriting:
        return False
    for module in overwriting:
        module.inplace = False  # type: ignore[assignment]
    try:
        after = _run(model, example)
    finally:
        for module in overwriting:
            module.inplace = True  # type: ignore[assignment]
    return not all(torch.allclose(a, b, equal_nan=True) for a, b in zip(before, after, strict=True))


def _run(model: nn.Module, example: Any) -> list[Tensor]:
    """What the model gives out, in eval mode."""
    # A copy, because a model that overwrites its input must find it again in the next run.
    example = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, example)
    with quietly(model), torch.no_grad():
        if isinstance(example, dict):
            return tensors_in(model(**example))
        return tensors_in(model(*(example if isinstance(example, tuple) else (example,))))
