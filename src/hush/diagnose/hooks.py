"""Hooks that read a model's activations while it runs, and leave no trace."""

from typing import Any

import torch
from torch import Tensor, nn

from hush.diagnose.reading import Reading
from hush.nn.flow import WEIGHT_LAYERS
from hush.nn.recognise import activations_of

__all__ = ["ActivationHooks"]


class ActivationHooks:
    """While open, reads every call of every activation of `model`; one `Reading` per call, in the order of calls.

    A model run on several batches goes on with the same readings.

    Attributes:
        batch: how many inputs the next run has; None takes the first axis of whatever an activation reads.
        first_squares: |x|²/N of each input of the first weight layer that ran.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names = {module: name for name, module in activations_of(model)}
        self.readings: list[Reading] = []
        self.batch: int | None = None
        self.first_squares: list[Tensor] = []
        self._handles: list[Any] = []
        self._call = 0
        self._unit_axis = -1
        self._fresh = True

    def open(self) -> "ActivationHooks":
        self._handles = [self.model.register_forward_pre_hook(self._start)]
        for module in self.model.modules():
            if module in self.names:
                self._handles.append(module.register_forward_pre_hook(self._before_activation, with_kwargs=True))
                self._handles.append(module.register_forward_hook(self._after_activation))
            elif isinstance(module, WEIGHT_LAYERS):
                self._handles.append(module.register_forward_pre_hook(self._before_layer, with_kwargs=True))
        return self

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> "ActivationHooks":
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """A new pass begins; called by itself when the hooks were there before the pass."""
        self._call, self._unit_axis, self._fresh = 0, -1, True

    def _start(self, *_: Any) -> None:
        self.start()

    def _before_layer(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        # Units are channels after a convolution and the last axis after a Linear.
        self._unit_axis = -1 if isinstance(module, nn.Linear) else 1
        if self._fresh:
            x = _first(arguments, named).detach()
            rows = x.flatten(1) if x.dim() > 1 else x.reshape(-1, 1)
            self.first_squares.append(rows.to(torch.float64).square().mean(1))
        self._fresh = False

    def _before_activation(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._call == len(self.readings):
            name, calls = self.names[module], sum(reading.module is module for reading in self.readings)
            self.readings.append(Reading(f"{name}#{calls + 1}" if calls else name, module, self._unit_axis))
        self.readings[self._call].read_input(_first(arguments, named), self.batch)

    def _after_activation(self, _module: nn.Module, _arguments: Any, output: Tensor) -> None:
        self.readings[self._call].read_output(output)
        self._call += 1


def _first(arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    value = arguments[0] if arguments else next(iter(named.values()))
    assert isinstance(value, Tensor)
    return value
