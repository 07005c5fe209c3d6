"""What reads a model's activations while it runs, modules and functions alike, and leaves no trace."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from hush.diagnose.calls import Calls, first_tensor
from hush.diagnose.reading import Reading
from hush.nn.flow import WEIGHT_LAYERS

__all__ = ["ActivationHooks", "Wanted"]


class Wanted:
    """Which calls are read, by their numbers in the run.

    Attributes:
        functions: the activations applied as functions, counted among all activations; None reads every one.
        sums: the sums of a stream and its branch.
        head: the layer that gives out what the model does; 0 for none.
    """

    def __init__(
        self, functions: frozenset[int] | None = None, sums: frozenset[int] = frozenset(), head: int = 0
    ) -> None:
        self.functions = functions
        self.sums = sums
        self.head = head


class ActivationHooks(Calls):
    """While open, reads every call of every activation of `model`; one `Reading` per call, in the order of calls.

    A model run on several batches goes on with the same readings.

    Attributes:
        batch: how many inputs the next run has; None takes the first axis of whatever an activation reads.
        readings: of the activations.
        streams: of the sums that are wanted.
        head: of what the head reads, if it is wanted.
        first_squares: |x|²/N of each input of the first weight layer that ran.
    """

    def __init__(self, model: nn.Module, wanted: Wanted | None = None) -> None:
        super().__init__(model)
        self.wanted = wanted or Wanted()
        self.readings: list[Reading] = []
        self.streams: list[Reading] = []
        self.head: Reading | None = None
        self.batch: int | None = None
        self.first_squares: list[Tensor] = []
        self._call = 0
        self._sum = 0
        self._unit_axis = -1
        self._fresh = True
        self._reading: Reading | None = None

    def __enter__(self) -> "ActivationHooks":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        self._call, self._sum, self._unit_axis, self._fresh = 0, 0, -1, True

    def before_module(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if isinstance(module, WEIGHT_LAYERS):
            # Units are channels after a convolution and the last axis after a Linear.
            self._read_layer(-1 if isinstance(module, nn.Linear) else 1, first_tensor(args, kwargs))

    def before_layer(self, number: int, unit_axis: int, x: Tensor) -> None:
        self._read_layer(unit_axis, x)
        if number == self.wanted.head:
            if self.head is None:
                self.head = Reading("head", "", unit_axis)
            self.head.read_input(x.detach(), self.batch)

    def before_activation(self, name: str, apply: Any, h: Tensor) -> None:
        self._reading = None
        module = isinstance(apply, nn.Module)
        functions = self.wanted.functions
        if not module and functions is not None and self.activations_seen not in functions:
            return
        if self._call == len(self.readings):
            title = _numbered(name, [reading.name for reading in self.readings])
            what, phi = (apply, None) if module else (apply.label, apply.phi)
            self.readings.append(Reading(title, what, self._unit_axis, phi))
        self._reading = self.readings[self._call]
        self._call += 1
        self._reading.read_input(h, self.batch)

    def after_activation(self, x: Tensor) -> None:
        if self._reading is not None:
            self._reading.read_output(x)
            self._reading = None

    def after_sum(self, number: int, name: str, total: Tensor) -> None:
        if number not in self.wanted.sums:
            return
        if self._sum == len(self.streams):
            title = _numbered(name or type(self.model).__name__, [reading.name for reading in self.streams])
            self.streams.append(Reading(title, "", self._unit_axis if total.dim() > 2 else -1))
        self.streams[self._sum].read_input(total, self.batch)
        self._sum += 1

    def _read_layer(self, unit_axis: int, x: Tensor) -> None:
        self._unit_axis = unit_axis
        if self._fresh:
            x = x.detach()
            rows = x.flatten(1) if x.dim() > 1 else x.reshape(-1, 1)
            self.first_squares.append(rows.to(torch.float64).square().mean(1))
        self._fresh = False


def _numbered(name: str, taken: list[str]) -> str:
    """name, name#2, name#3, …"""
    calls = Counter(other.split("#")[0] for other in taken)[name]
    return f"{name}#{calls + 1}" if calls else name
