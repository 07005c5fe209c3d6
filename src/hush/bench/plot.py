"""Speedup against sparsity and against batch, with the 1/(1 − s) line."""

from __future__ import annotations

from pathlib import Path

from .row import OURS, Row

__all__ = ["plot"]


def plot(rows: list[Row], path: str | Path) -> None:
    """One panel over sparsity (a line per batch), one over batch (a line per sparsity)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    ours = [r.to_dict() for r in rows if r.peer in OURS and r.ratio_to_best_peer is not None]
    if not ours:
        raise ValueError("there is nothing to draw: no peer of the same precision was measured.")
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5))
    for panel, across, along in ((panels[0], "sparsity", "batch"), (panels[1], "batch", "sparsity")):
        for key in sorted({tuple(r[k] for k in ("work", "peer", "width", along)) for r in ours}, key=str):
            same = [r for r in ours if tuple(r[k] for k in ("work", "peer", "width", along)) == key]
            line = sorted((float(str(r[across])), float(str(r["ratio_to_best_peer"]))) for r in same)
            label = f"{key[0]} {key[1]}, width {key[2]}, {along} {key[3]}"
            panel.plot([x for x, _ in line], [y for _, y in line], marker="o", label=label)
        panel.set_xlabel(across)
        panel.set_ylabel("speedup over the fastest peer")
        panel.axhline(1.0, color="grey", linewidth=0.8)
    values = sorted({float(str(r["sparsity"])) for r in ours})
    panels[0].plot(values, [1 / (1 - s) for s in values], "k--", label="1/(1 − s)")
    for panel in panels:
        panel.legend(fontsize=6)
    panels[1].set_xscale("log", base=2)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
