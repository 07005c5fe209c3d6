"""Speedup against sparsity and against batch, with the 1/(1 − s) line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .measurement import OURS, Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_speedup"]


def plot_speedup(found: list[Measurement], path: str | Path) -> None:
    """One panel over sparsity (a line per batch), one over batch (a line per sparsity)."""
    from hush._style import BLACK, panels, style

    ours = [r.to_dict() for r in found if r.peer in OURS and r.ratio_to_best_peer is not None]
    if not ours:
        raise ValueError("there is nothing to draw: no peer of the same precision was measured.")
    with style():
        figure, both = panels(1, 2, 3.6, width=10.0)
        for panel, across, along in zip(both, ("sparsity", "batch"), ("batch", "sparsity"), strict=True):
            _lines(panel, ours, across, along)
        values = sorted({float(str(r["sparsity"])) for r in ours})
        both[0].plot(values, [1 / (1 - s) for s in values], color=BLACK, ls="--", label="1/(1 − s)")
        both[1].set_xscale("log", base=2)
        for panel in both:
            panel.axhline(1.0, color="grey", linewidth=0.8)
            panel.legend(fontsize=6)
        figure.savefig(path)


def _lines(panel: Axes, ours: list[dict[str, object]], across: str, along: str) -> None:
    """Ratio over `across`, a line for each work, peer, width and value of `along`."""
    for key in sorted({tuple(r[k] for k in ("work", "peer", "width", along)) for r in ours}, key=str):
        same = [r for r in ours if tuple(r[k] for k in ("work", "peer", "width", along)) == key]
        line = sorted((float(str(r[across])), float(str(r["ratio_to_best_peer"]))) for r in same)
        label = f"{key[0]} {key[1]}, width {key[2]}, {along} {key[3]}"
        panel.plot([x for x, _ in line], [y for _, y in line], marker="o", label=label)
    panel.set_xlabel(across)
    panel.set_ylabel("speedup over the fastest peer")
