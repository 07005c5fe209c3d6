"""Speedup against sparsity and batch, with the 1/(1 − s) line, and the work done beside the machine's roofline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .measurement import OURS, Measurement
from .roofline import Roofline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_speedup"]

# Of a weight that is read for one multiplication and one addition: two operations on four bytes.
_FLOPS_PER_BYTE = 0.5


def plot_speedup(found: list[Measurement], path: str | Path, roofline: Roofline) -> None:
    """A panel over sparsity (a line per batch), one over batch (a line per sparsity), one beside the roofline."""
    from hush._style import BLACK, panels, style

    ours = [m for m in found if m.peer in OURS and m.ratio_to_best_peer is not None]
    if not ours:
        raise ValueError("there is nothing to draw: no peer of the same precision was measured.")
    with style():
        figure, (by_sparsity, by_batch, by_work) = panels(1, 3, 3.8, width=14.0)
        _lines(by_sparsity, ours, "sparsity", "batch", "ratio_to_best_peer")
        _lines(by_batch, ours, "batch", "sparsity", "ratio_to_best_peer")
        _lines(by_work, ours, "sparsity", "batch", "useful_gflops")
        values = np.linspace(min(m.setting.sparsity for m in ours), max(m.setting.sparsity for m in ours))
        by_sparsity.plot(values, 1 / (1 - values), color=BLACK, ls="--", label="1/(1 − s)")
        bounds = {m.setting.sparsity: m.bound for m in ours if m.bound is not None}
        if bounds:
            # Where some products have no zeros.
            line = [bounds[s] for s in sorted(bounds)]
            by_sparsity.plot(sorted(bounds), line, color=BLACK, ls=":", label="what this network's zeros leave")
        by_batch.set_xscale("log", base=2)
        for panel in (by_sparsity, by_batch):
            panel.axhline(1.0, color="grey", linewidth=0.8)
            panel.set_ylabel("speedup over the fastest peer")
        _draw_roofs(by_work, roofline)
        for panel in (by_sparsity, by_batch, by_work):
            panel.legend(fontsize=6)
        figure.savefig(path)


def _lines(panel: Axes, ours: list[Measurement], across: str, along: str, value: str) -> None:
    """A value of the measurements over `across`, a line for each work, peer, width and value of `along`."""

    def key_of(m: Measurement) -> tuple[str, str, int, float]:
        return m.setting.work, m.peer, m.setting.width, getattr(m.setting, along)

    for key in sorted({key_of(m) for m in ours}):
        line = sorted((getattr(m.setting, across), getattr(m, value)) for m in ours if key_of(m) == key)
        label = f"{key[0]} {key[1]}, width {key[2]}, {along} {key[3]}"
        panel.plot([x for x, _ in line], [y for _, y in line], marker="o", label=label)
    panel.set_xlabel(across)


def _draw_roofs(panel: Axes, roofline: Roofline) -> None:
    """What the machine multiplies at best, and what is left where each weight is read for one multiply-add."""
    roofs = {f"a weight from {level} each": roofline.roof(_FLOPS_PER_BYTE, level) for level in roofline.gb_s}
    for words, roof in {"multiply-adds on registers": roofline.gflops, **roofs}.items():
        solid = words not in roofs
        panel.axhline(roof, color="black" if solid else "grey", linewidth=0.8, ls="-" if solid else "--")
        # The first roof may be so near to the second that both words would stand in one place.
        x, side = (0.98, "right") if solid else (0.02, "left")
        panel.text(x, roof, words, transform=panel.get_yaxis_transform(), ha=side, va="bottom", fontsize=6)
    panel.set_yscale("log")
    panel.set_ylabel("GFLOP/s on active units")
