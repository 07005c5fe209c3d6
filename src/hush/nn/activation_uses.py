"""Run a model once and count: how often each module was called, and which activations were applied as functions.

A function that a forward calls by itself (`F.relu(x)`) is held by no attribute, so it can be neither found nor replaced
by looking at the model.
"""

from collections import Counter
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from hush.nn.activation_places import known_activation
from hush.nn.quiet_run import quietly
from hush.nn.torch_functions import ELEMENTWISE_ACTIVATIONS

__all__ = ["Uses", "watch_uses"]


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
        stack.enter_context(quietly(model))
        stack.enter_context(torch.no_grad())
        stack.enter_context(uses)
        if isinstance(example, dict):
            model(**example)
        else:
            model(*(example if isinstance(example, tuple) else (example,)))
    return uses
