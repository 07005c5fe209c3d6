"""The figures of `hush.diagnose` during training, every n steps, by hooks that are absent in between."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hush.diagnose.hooks import ActivationHooks
from hush.diagnose.reading import Reading

__all__ = ["LayerFigures", "Monitor", "Snapshot"]


@dataclass(frozen=True)
class LayerFigures:
    """One layer at one step; `gradient` is the norm of ∂L/∂h over the batch, None without a backward pass."""

    name: str
    q: float
    sparsity: float
    saturated: float
    dead: float
    correlation: float | None
    gradient: float | None


@dataclass(frozen=True)
class Snapshot:
    """Every layer at one step."""

    step: int
    layers: tuple[LayerFigures, ...]

    @property
    def sparsity(self) -> float:
        """The mean over the layers."""
        return sum(layer.sparsity for layer in self.layers) / len(self.layers)

    def scalars(self) -> dict[str, float]:
        """{"sparsity": …, "q/phi1": …, "gradient/phi1": …}, ready for a logger."""
        named = {"sparsity": self.sparsity}
        for layer in self.layers:
            for figure in ("q", "sparsity", "saturated", "dead", "correlation", "gradient"):
                value = getattr(layer, figure)
                if value is not None:
                    named[f"{figure}/{layer.name}"] = value
        return named

    def __str__(self) -> str:
        first, last = self.layers[0], self.layers[-1]
        return f"step {self.step}: sparsity {self.sparsity:.3f}, q {first.q:.3g} … {last.q:.3g}"


class Monitor:
    """Takes a snapshot of every n-th training step (forward in train mode, with gradients); close it when done.

        with hush.diagnose.Monitor(model, every=50, log=print) as monitor:
            …train…
        monitor.history[-1].sparsity

    A snapshot is complete, and logged, when the next step begins: by then its backward pass is over.

    Batch:
        every: n; steps 0, n, 2n, … are measured, all others run without hooks.
        first: so many steps at the beginning are measured too, one by one.
        step: the number of the next step, when training goes on from a checkpoint.
        log: called with each Snapshot; `snapshot.scalars()` suits a logger.
        keep: how many snapshots `history` holds at most.
    """

    def __init__(
        self,
        model: nn.Module,
        every: int = 50,
        log: Callable[[Snapshot], Any] | None = None,
        keep: int = 1000,
        *,
        first: int = 0,
        step: int = 0,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}.")
        self.model = model
        self.every = every
        self.first = first
        self.log = log
        self.step = step
        self._history: deque[Snapshot] = deque(maxlen=keep)
        self._hooks: ActivationHooks | None = None
        self._pending: tuple[int, ActivationHooks] | None = None
        self._handles = [
            model.register_forward_pre_hook(self._begin),
            model.register_forward_hook(self._end, always_call=True),
        ]

    @property
    def history(self) -> list[Snapshot]:
        """The snapshots so far, oldest first."""
        self._finish()
        return list(self._history)

    def close(self) -> None:
        """Finish the last snapshot and remove every hook."""
        self._finish()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, model: nn.Module, _: Any) -> None:
        # Validation in between is no step.
        if not (model.training and torch.is_grad_enabled()):
            return
        self._finish()
        if self.step < self.first or self.step % self.every == 0:
            self._hooks = ActivationHooks(model)
            self._hooks.open()
            self._hooks.start()
        self.step += 1

    def _end(self, *arguments: Any) -> None:
        if self._hooks is not None:
            hooks, self._hooks = self._hooks, None
            hooks.close()
            if hooks.readings:
                self._pending = (self.step - 1, hooks)
            elif len(arguments) < 3 or arguments[2] is not None:
                # Without an output the model itself failed, and says so.
                raise ValueError(f"{type(self.model).__name__} has no activation to read: none ran in this step.")

    def _finish(self) -> None:
        if self._pending is None:
            return
        (step, hooks), self._pending = self._pending, None
        snapshot = Snapshot(step, tuple(_figures(reading) for reading in hooks.readings))
        self._history.append(snapshot)
        if self.log is not None:
            self.log(snapshot)


def _figures(reading: Reading) -> LayerFigures:
    squares = reading.squared_gradients
    return LayerFigures(
        reading.name,
        float(torch.cat(reading.q).median()),
        reading.sparsity,
        reading.saturated,
        reading.dead,
        reading.correlation,
        float(torch.cat(squares).sum().sqrt()) if squares else None,
    )
