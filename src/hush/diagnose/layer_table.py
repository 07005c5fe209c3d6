"""The layers of a diagnosis as a table of text, each figure with its band behind it."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hush.diagnose.diagnosis import Layer, Range

__all__ = ["format_layers"]


class _Column(NamedTuple):
    title: str
    cell: Callable[["Layer"], str]
    right: bool = True


def format_layers(layers: Sequence["Layer"], marked: "Layer | None", every: int) -> str:
    """Every `every`-th layer, the last, and the marked one, which gets a '>'; columns without entries are left out."""
    last = layers[-1].index
    shown = [layer for layer in layers if (layer.index - 1) % every == 0 or layer.index == last or layer is marked]
    blocks = []
    for column in _columns(marked):
        cells = [column.cell(layer) for layer in shown]
        if any(cells):
            width = max(len(column.title), *map(len, cells))
            aligned = str.rjust if column.right else str.ljust
            blocks.append([aligned(cell, width) for cell in (column.title, *cells)])
    return "\n".join("  ".join(line).rstrip() for line in zip(*blocks, strict=True))


def _columns(marked: "Layer | None") -> tuple[_Column, ...]:
    return (
        _Column("layer", lambda layer: f"{'>' if layer is marked else ''}{layer.index}"),
        _Column("name", lambda layer: layer.name, right=False),
        _Column("reads", lambda layer: layer.reads, right=False),
        _Column("units", _units),
        _Column("q", lambda layer: _number(layer.q)),
        _Column("band", lambda layer: _range(layer.q_band), right=False),
        _Column("inside", lambda layer: "" if layer.inside is None else f"{layer.inside:.0%}"),
        _Column("sparsity", lambda layer: f"{layer.sparsity:.3f}"),
        _Column("band", lambda layer: _range(layer.sparsity_band), right=False),
        _Column("satur.", lambda layer: f"{layer.saturated:.3f}"),
        _Column("dead", lambda layer: f"{layer.dead:.3f}"),
        _Column("corr.", lambda layer: "" if layer.correlation is None else f"{layer.correlation:.3f}"),
        _Column("band", lambda layer: _range(layer.correlation_band), right=False),
        _Column("log10 gain", lambda layer: _number(layer.gain_log10)),
        _Column("band", lambda layer: _range(layer.gain_log10_band), right=False),
    )


def _units(layer: "Layer") -> str:
    return str(layer.units) if layer.positions == 1 else f"{layer.units}×{layer.positions}"


def _number(value: float) -> str:
    return f"{value:.2f}" if not math.isfinite(value) or abs(value) < 1e3 else f"{value:.1e}"


def _range(band: "Range | None") -> str:
    return "" if band is None else f"{_number(band[0])}–{_number(band[1])}"
