"""Hooks that read a model's activations while it runs, and leave no trace: statistics stream, nothing is kept.

Of each call of an activation module, h in and x = φ(h) out:

    q = |h|²/N of each input      sparsity = share of x = 0        saturated = share of φ′ = 0, x ≠ 0
    dead = units with x = 0 for every input      correlation = mean cosine of h over pairs of inputs
    |δ|² = |∂L/∂h|² of each input, if a backward pass follows
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hush.nn.flow import WEIGHT_LAYERS
from hush.nn.recognise import activations_of, phi_of
from hush.theory import Activation

__all__ = ["Reading", "Tap"]


class Reading:
    """The running statistics of one call of one activation module."""

    def __init__(self, name: str, module: nn.Module, unit_axis: int) -> None:
        self.name = name
        self.module = module
        self.phi: Activation | None = phi_of(module)
        self.unit_axis = unit_axis
        self.q: list[Tensor] = []
        self.squared_gradients: list[Tensor] = []
        self.cosines: list[Tensor] = []
        self.inputs = 0
        self.positions = 1
        self._count = 0
        self._zeros: Tensor | int = 0
        self._saturated: Tensor | int = 0
        self._alive: Tensor | None = None
        self._cosine_sum: Tensor | float = 0.0
        self._pairs = 0

    def read_input(self, h: Tensor) -> None:
        rows = h.detach().flatten(1)
        # In float64 while summing: the squares of an exploding network overflow float32.
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        self.q.append(norms.square() / rows.shape[1])
        self.inputs += rows.shape[0]
        if rows.shape[0] > 1:
            unit = rows / norms.clamp(min=1e-300).to(rows.dtype)[:, None]
            cosines = unit @ unit.T
            pairs = rows.shape[0] * (rows.shape[0] - 1)
            self._cosine_sum = self._cosine_sum + (cosines.sum(dtype=torch.float64) - cosines.diagonal().sum())
            self._pairs += pairs
            if not self.cosines:
                upper = torch.triu_indices(rows.shape[0], rows.shape[0], 1, device=rows.device)
                self.cosines.append(cosines[upper[0], upper[1]])
        if h.requires_grad:
            h.register_hook(self._read_gradient)

    def read_output(self, x: Tensor) -> None:
        x = x.detach()
        silent = x == 0
        self._count += x.numel()
        self._zeros = self._zeros + silent.sum()
        for value in self._flat_values():
            self._saturated = self._saturated + (x == value).sum()
        others = [axis for axis in range(x.dim()) if axis != self.unit_axis % x.dim()]
        alive = ~silent.all(dim=others[0]) if len(others) == 1 else ~silent.movedim(self.unit_axis, 0).flatten(1).all(1)
        self.positions = x[0].numel() // alive.numel()
        self._alive = alive if self._alive is None else self._alive | alive

    def _flat_values(self) -> list[float]:
        if self.phi is None:
            return []
        return list(self.phi.plateaus)

    def _read_gradient(self, gradient: Tensor) -> None:
        norms = torch.linalg.vector_norm(gradient.detach().flatten(1), dim=1, dtype=torch.float64)
        self.squared_gradients.append(norms.square())

    @property
    def units(self) -> int:
        return 0 if self._alive is None else self._alive.numel()

    @property
    def sparsity(self) -> float:
        return float(self._zeros) / self._count

    @property
    def saturated(self) -> float:
        return float(self._saturated) / self._count

    @property
    def dead(self) -> float:
        return 0.0 if self._alive is None else 1.0 - float(self._alive.double().mean())

    @property
    def correlation(self) -> float | None:
        return float(self._cosine_sum) / self._pairs if self._pairs else None


class Tap:
    """While open, reads every call of every activation of `model`; one `Reading` per call, in the order of calls.

    A model run on several batches goes on with the same readings.

    Attributes:
        between: every other leaf module that ran after the first activation, and after how many of them.
        first_squares: |x|²/N of each input of the first weight layer that ran.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names = {module: name for name, module in activations_of(model)}
        self.readings: list[Reading] = []
        self.between: dict[nn.Module, int] = {}
        self.first_squares: list[Tensor] = []
        self._handles: list[Any] = []
        self._call = 0
        self._unit_axis = -1
        self._fresh = True

    def open(self) -> "Tap":
        register: list[tuple[nn.Module, Callable[..., Any], Callable[..., Any] | None]] = []
        for module in self.model.modules():
            if module in self.names:
                register.append((module, self._before_activation, self._after_activation))
            elif isinstance(module, WEIGHT_LAYERS):
                register.append((module, self._before_layer, None))
            elif next(module.children(), None) is None:
                register.append((module, self._before_other, None))
        self._handles = [self.model.register_forward_pre_hook(self._start)]
        for module, before, after in register:
            self._handles.append(module.register_forward_pre_hook(before))
            if after is not None:
                self._handles.append(module.register_forward_hook(after))
        return self

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> "Tap":
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """A new pass begins; called by itself when the hooks were there before the pass."""
        self._call, self._unit_axis, self._fresh = 0, -1, True

    def _start(self, *_: Any) -> None:
        self.start()

    def _before_layer(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        # Units are channels after a convolution and the last axis after a Linear.
        self._unit_axis = -1 if isinstance(module, nn.Linear) else 1
        if self._fresh and arguments and isinstance(arguments[0], Tensor):
            rows = arguments[0].detach().flatten(1)
            self.first_squares.append(rows.to(torch.float64).square().mean(1))
        self._fresh = False

    def _before_other(self, module: nn.Module, _: Any) -> None:
        if self._call:
            self.between.setdefault(module, self._call)

    def _before_activation(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._call == len(self.readings):
            name, calls = self.names[module], sum(reading.module is module for reading in self.readings)
            self.readings.append(Reading(f"{name}#{calls + 1}" if calls else name, module, self._unit_axis))
        self.readings[self._call].read_input(arguments[0])

    def _after_activation(self, _module: nn.Module, _arguments: Any, output: Tensor) -> None:
        self.readings[self._call].read_output(output)
        self._call += 1
