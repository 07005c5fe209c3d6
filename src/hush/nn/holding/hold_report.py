"""What a hold has done so far, layer by layer, in words and numbers."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["HeldLayer", "HoldReport"]


@dataclass(frozen=True)
class HeldLayer:
    """One held activation.

    Attributes:
        goal: the share of zeros in the end, `target` at this step of the schedule.
        zeros: the share of zeros in the last step; None before the first.
        zeros_of_window: over the last full window, or this one as far as it is while none is full.
        threshold, clip: as they are now.
        dead: the share of units that were never active in the last full window; None while none is full.
        revived: how many units have been active again, after a whole window without and a push to their bias; None
            where nothing is done for dead units.
        has_bias: whether the layer in front has a bias that can be pushed; None before that is known, or not asked.
        moves: how many steps have moved the threshold.
        off_target: whether the zeros of the last full window are more than 0.01 from the target.
        at_bound: whether the threshold is 0 and would have to be lower.
    """

    name: str
    goal: float
    target: float
    zeros: float | None
    zeros_of_window: float | None
    threshold: float
    clip: float | None
    dead: float | None
    revived: int | None
    has_bias: bool | None
    moves: int
    off_target: bool
    at_bound: bool

    @property
    def note(self) -> str:
        if not self.moves:
            return "no step yet"
        if self.at_bound:
            return "the threshold is 0 and cannot fall further"
        if self.off_target:
            return "off its target over the last window"
        if self.has_bias is False:
            return "no bias in front that could bring units back"
        return ""


@dataclass(frozen=True)
class HoldReport:
    """Every held activation; `print` it, or take `to_dict()` and `to_json()`."""

    layers: tuple[HeldLayer, ...]
    window: int

    @property
    def worst(self) -> float | None:
        """The largest distance of a layer's zeros from its target, over the window; None before the first step."""
        off = [abs(x.zeros_of_window - x.target) for x in self.layers if x.zeros_of_window is not None]
        return max(off, default=None)

    def to_dict(self) -> dict[str, Any]:
        return {"window": self.window, "worst": self.worst, "layers": [asdict(layer) for layer in self.layers]}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        head = ("layer", "target", "zeros", "window", "threshold", "clip", "dead", "revived", "")
        rows = [head, *(_row(layer) for layer in self.layers)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        steps = max((layer.moves for layer in self.layers), default=0)
        last = f"After {steps} steps; zeros of the last one, and over a window of {self.window}."
        return "\n".join([*lines, last])


def _row(layer: HeldLayer) -> tuple[str, ...]:
    numbers = (layer.target, layer.zeros, layer.zeros_of_window, layer.threshold, layer.clip, layer.dead)
    revived = "–" if layer.revived is None else str(layer.revived)
    return (layer.name or "the model", *(_number(value) for value in numbers), revived, layer.note)


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, *numbers, note = row
    cells = [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True))]
    return "  ".join([*cells, note]).rstrip()
