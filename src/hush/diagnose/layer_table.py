"""The layers and the stream of a diagnosis as tables of text, each figure with its band behind it."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from hush.diagnose.diagnosis import Layer, Range, StreamPoint

__all__ = ["format_layers", "format_stream"]


class _Column(NamedTuple):
    title: str
    cell: Callable[[Any], str]
    right: bool = True


def format_layers(layers: Sequence["Layer"], marked: "Layer | None", every: int) -> str:
    """Every `every`-th layer, the last, and the marked one, which gets a '>'; columns without entries are left out."""
    last = layers[-1].index
    shown = [layer for layer in layers if (layer.index - 1) % every == 0 or layer.index == last or layer is marked]
    return _table(shown, _columns(marked))


def format_stream(points: Sequence["StreamPoint"], every: int) -> str:
    """Every `every`-th sum, and the last."""
    last = points[-1].index
    return _table([p for p in points if (p.index - 1) % every == 0 or p.index == last], _STREAM)


def _table(shown: Sequence[Any], columns: Sequence[_Column]) -> str:
    blocks = []
    for column in columns:
        cells = [column.cell(row) for row in shown]
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
        _Column("q", lambda layer: _number(layer.q, small=layer.dead_predicted is None)),
        _Column("band", lambda layer: _range(layer.q_band, small=layer.dead_predicted is None), right=False),
        _Column("inside", lambda layer: "" if layer.inside is None else f"{layer.inside:.0%}"),
        _Column("sparsity", lambda layer: f"{layer.sparsity:.3f}"),
        _Column("band", lambda layer: _range(layer.sparsity_band), right=False),
        _Column("satur.", lambda layer: f"{layer.saturated:.3f}"),
        _Column("dead", lambda layer: f"{layer.dead:.3f}"),
        _Column("corr.", lambda layer: "" if layer.correlation is None else f"{layer.correlation:.3f}"),
        _Column("band", lambda layer: _range(layer.correlation_band), right=False),
        # Where there is a band it has the expected value inside.
        _Column("exp.", lambda layer: _share(None if layer.correlation_band else layer.correlation_predicted)),
        _Column("tokens", lambda layer: _share(layer.token_correlation if layer.q_predicted is not None else None)),
        _Column("exp.", lambda layer: _share(layer.token_correlation_predicted)),
        _Column("log10 gain", lambda layer: _number(layer.gain_log10)),
        _Column("band", lambda layer: _range(layer.gain_log10_band), right=False),
    )


_STREAM = (
    _Column("sum", lambda point: str(point.index)),
    _Column("in", lambda point: point.name, right=False),
    _Column("p", lambda point: _number(point.p, small=True)),
    _Column("band", lambda point: _range(point.p_band, small=True), right=False),
    _Column("corr.", lambda point: _share(point.correlation)),
    _Column("exp.", lambda point: _share(point.correlation_predicted)),
    _Column("tokens", lambda point: _share(point.token_correlation)),
    _Column("exp.", lambda point: _share(point.token_correlation_predicted)),
    _Column("log10 gain", lambda point: _number(point.gain_log10)),
    _Column("band", lambda point: _range(point.gain_log10_band), right=False),
)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _units(layer: "Layer") -> str:
    return str(layer.units) if layer.positions == 1 else f"{layer.units}×{layer.positions}"


def _number(value: float, small: bool = False) -> str:
    """Two decimals; three figures where the model's own weights may have made it small."""
    if small and 0.0 < abs(value) < 0.1:
        return f"{value:.3g}"
    return f"{value:.2f}" if not math.isfinite(value) or abs(value) < 1e3 else f"{value:.1e}"


def _range(band: "Range | None", small: bool = False) -> str:
    return "" if band is None else f"{_number(band[0], small)}–{_number(band[1], small)}"
