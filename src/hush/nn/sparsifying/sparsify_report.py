"""What `sparsify` did to each layer and to the model's outputs, in words and numbers."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from hush.nn.swap_report import FunctionUse, LeftActivation

__all__ = ["OutputChange", "SparsifiedLayer", "SparsifyReport"]


@dataclass(frozen=True)
class SparsifiedLayer:
    """One activation with a threshold now.

    Attributes:
        was, now: the class or function that was there, and the module that is.
        target: the share of zeros asked for.
        threshold: τ.
        zeros: the share of zeros measured, with all thresholds in place; None where it did not run.
        error: of what it gives out, ‖φ(h) − φ_τ(h)‖/‖φ(h)‖.
        reader: the Linear or convolution that reads its output as it is, or "".
        reader_error: the same of the reader's output; None without a reader.
        note: what else there is to know, or "".
    """

    name: str
    was: str
    now: str
    target: float
    threshold: float
    zeros: float | None = None
    error: float | None = None
    reader: str = ""
    reader_error: float | None = None
    note: str = ""


@dataclass(frozen=True)
class OutputChange:
    """How far the model's outputs are from those it had, on the same batches.

    Attributes:
        relative_error: ‖before − after‖/‖before‖.
        divergence: KL(before ‖ after) in nats and `agreement` of the largest entry, of outputs read as logits over
            their last dimension; None where that has fewer than two entries.
    """

    relative_error: float | None
    divergence: float | None
    agreement: float | None

    def __str__(self) -> str:
        parts = [f"relative error {_number(self.relative_error)}"]
        if self.divergence is not None:
            same = 100.0 * (self.agreement or 0.0)
            parts.append(f"as logits: KL {self.divergence:.4g} nats, the same largest one in {same:.1f} %")
        return "; ".join(parts)


@dataclass(frozen=True)
class SparsifyReport:
    """Every activation of the model: sparsified, left, or applied as a function; `print` it, or take `to_json()`.

    Attributes:
        output: None where nothing was measured.
        functions: activations that a forward applies as functions, which nothing can replace from outside.
        batches, inputs: how many it was measured on.
        notes: what else there is to know of the model.
    """

    layers: tuple[SparsifiedLayer, ...]
    left: tuple[LeftActivation, ...]
    functions: tuple[FunctionUse, ...]
    output: OutputChange | None
    batches: int
    inputs: int
    notes: tuple[str, ...] = ()

    @property
    def mean_zeros(self) -> float | None:
        """The mean share of zeros over the layers that ran."""
        known = [layer.zeros for layer in self.layers if layer.zeros is not None]
        return sum(known) / len(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        head = ("layer", "activation", "target", "zeros", "threshold", "error", "next layer's", "")
        lines = _table([head, *(_row(layer) for layer in self.layers)])
        if self.left:
            lines += ["", "Left alone:"]
            lines += [f"  {entry.name or 'the model'}, {entry.was}: {entry.reason}" for entry in self.left]
        for use in self.functions:
            lines.append(
                f"{use.function} in {use.place or 'the model itself'} is applied as a function, and stays: make it a "
                f"module there (self.act = nn.ReLU()) to sparsify it."
            )
        lines.append("")
        if self.output is not None:
            lines.append(f"Over {self.inputs} inputs in {self.batches} batches. The model's output: {self.output}.")
        return "\n".join([*lines, *self.notes])


def _row(layer: SparsifiedLayer) -> tuple[str, ...]:
    numbers = (layer.target, layer.zeros, layer.threshold, layer.error, layer.reader_error)
    return (layer.name, f"{layer.was} → {layer.now.split('(')[0]}", *map(_number, numbers), layer.note)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, what, *numbers, note in rows:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[2:-1], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), what.ljust(widths[1]), *cells, note]).rstrip())
    return lines
