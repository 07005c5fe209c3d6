"""What a hold knows of each unit of one layer: how often it was active, and how near to it its inputs came."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Units", "Window"]

_ROWS = ("active", "seen", "raised", "highest", "lowest")


class Window(NamedTuple):
    """What a window tells of each unit: how often it was active, and the bounds of its inputs, where watched."""

    seen: Tensor | None
    highest: Tensor | None
    lowest: Tensor | None


class Units:
    """Counts by unit, None before the first forward.

    Attributes:
        inputs: how many sides of the inputs are watched: 0 for none, 1 for the highest, 2 for the lowest too.
        active: how often each was active since the last move.
        seen: how often in this window, until the last move.
        raised: 1 for a unit that was silent in the last window and whose bias was moved then, otherwise 0.
        highest, lowest: the bounds of what came in, in this window.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.active: Tensor | None = None
        self.seen: Tensor | None = None
        self.raised: Tensor | None = None
        self.highest: Tensor | None = None
        self.lowest: Tensor | None = None

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of what is kept."""
        return _ROWS[:2] if self.inputs == 0 else _ROWS[: 3 + self.inputs]

    def forget(self) -> None:
        self.active = self.seen = self.raised = self.highest = self.lowest = None

    def clear(self) -> None:
        """Nothing has been active since the last move."""
        if self.active is not None:
            self.active.zero_()

    def count(self, x: Tensor, y: Tensor, axis: int) -> None:
        """Add one forward: the inputs x and outputs y of all units, which lie along `axis`."""
        axis = axis % y.dim() if y.dim() > 1 else y.dim() - 1
        rest = [d for d in range(y.dim()) if d != axis]
        # Of the ways to count by unit this is the fastest by far on a CPU; float32 counts exactly up to 2²⁴.
        active = y.sign().abs_()
        active = active.sum(rest, dtype=torch.float32) if rest else active.float()
        if self.active is None:
            self._begin(active)
        assert self.active is not None
        if self.active.device != active.device:
            self._move_to(active.device)
        if self.active.shape != active.shape:
            # One module at several widths: its units are no longer told apart.
            active, counted = active.sum().reshape(1), self.active.sum().reshape(1)
            self._begin(counted)
            self.active = counted
        self.active.add_(active)
        if self.inputs and self.active.shape == active.shape and self.active.numel() > 1:
            self._watch(x, rest)

    def _watch(self, x: Tensor, rest: list[int]) -> None:
        # fmax and fmin leave a NaN out, which has nothing to say of how near an input came.
        if self.highest is not None:
            self.highest.copy_(torch.fmax(self.highest, (x.amax(rest) if rest else x).float()))
        if self.lowest is not None:
            self.lowest.copy_(torch.fmin(self.lowest, (x.amin(rest) if rest else x).float()))

    def _begin(self, like: Tensor) -> None:
        self.active = torch.zeros_like(like)
        self.seen = torch.zeros_like(like)
        if self.inputs:
            self.raised = torch.zeros_like(like)
            self.highest = torch.full_like(like, -math.inf)
        if self.inputs == 2:
            self.lowest = torch.full_like(like, math.inf)

    def _move_to(self, device: torch.device) -> None:
        for name in self.rows:
            values = getattr(self, name)
            setattr(self, name, None if values is None else values.to(device))

    def after_move(self) -> None:
        """What was active until now belongs to the window."""
        if self.active is not None and self.seen is not None:
            self.seen.add_(self.active)

    @property
    def window(self) -> Window:
        return Window(self.seen, self.highest, self.lowest)

    def begin_window(self) -> None:
        if self.seen is not None:
            self.seen.zero_()
        if self.highest is not None:
            self.highest.fill_(-math.inf)
        if self.lowest is not None:
            self.lowest.fill_(math.inf)

    # -------------------------------------------------------------------------------------------------------- saving

    def state(self) -> Tensor:
        """All rows one after the other in float64; empty while no unit is known."""
        if self.active is None:
            return torch.zeros(0, dtype=torch.float64, device="cpu")
        return torch.cat([getattr(self, name).detach().double().cpu() for name in self.rows])

    def load(self, state: Tensor, count: int, device: torch.device) -> None:
        """What `state` gave for so many units, perhaps where inputs were watched and here not, or the other way."""
        self.forget()
        if not count:
            return
        rows = state.to(device=device, dtype=torch.float32).reshape(-1, count)
        self._begin(rows[0])
        for name, row in zip(_ROWS, rows, strict=False):
            if name in self.rows:
                setattr(self, name, row.clone())
