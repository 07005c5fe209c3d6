"""The report's pictures: curves over training, heat maps over layers and steps, the variance map of a design."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from hush._style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, identity_line, mark, panels, style, styled
from hush.theory import Design, Stability, variance_map
from hush.train.tables import by_layer

if TYPE_CHECKING:
    from hush.train import Run

__all__ = ["curve", "heat_map", "png", "svg", "variance"]

_COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
_DASHES = ("-", "--", ":", "-.")
_SIZE = (3.9, 2.7)
# Of more runs than this the names would cover the curves; the table says which is which.
_LEGEND = 7


def svg(figure: Figure) -> bytes:
    """The figure as SVG, the same bytes for the same figure."""
    file = io.BytesIO()
    with style():
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def png(figure: Figure) -> bytes:
    """The figure as PNG: smaller than SVG where there are many cells."""
    file = io.BytesIO()
    with style():
        figure.savefig(file, format="png", dpi=150)
    return file.getvalue()


@styled
def curve(runs: Sequence["Run"], names: Sequence[str], table: str, x: str, y: str, label: str) -> Figure | None:
    """One column of a table against another, a line for each run that has any; None where none has."""
    legend = 1 < len(runs) <= _LEGEND
    figure, (panel,) = panels(1, 1, _SIZE[1] + (0.14 * len(runs) if legend else 0.0), width=_SIZE[0])
    for i, (run, name) in enumerate(zip(runs, names, strict=True)):
        columns = getattr(run, table)
        known = np.isfinite(columns[y])
        if known.any():
            look = {"color": _COLOURS[i % len(_COLOURS)], "ls": _DASHES[i // len(_COLOURS) % len(_DASHES)]}
            single = "o" if known.sum() == 1 else None
            panel.plot(columns[x][known], columns[y][known], lw=1.3, marker=single, label=name, **look)  # type: ignore[arg-type]
    if not panel.lines:
        return None
    panel.set_xlabel(x)
    panel.set_ylabel(label)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if y in ("sparsity", "validation_accuracy"):
        panel.set_ylim(-0.02, 1.02)
    if legend:
        figure.legend(loc="outside upper left", fontsize=7, frameon=False)
    return figure


@styled
def heat_map(run: "Run", column: str, label: str, *, logarithmic: bool) -> Figure | None:
    """A figure of every layer at every step that was recorded; None where nothing was."""
    steps, values = grid(run, column)
    if logarithmic:
        values = np.where(values > 0.0, values, np.nan)
    if not np.isfinite(values).any():
        return None
    figure, (panel,) = panels(1, 1, _SIZE[1], width=_SIZE[0])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    norm = LogNorm(low, max(high, low * 1.01)) if logarithmic else None
    limits = {} if logarithmic else {"vmin": 0.0, "vmax": 1.0}
    # Each recorded step is one column, whatever the distance to the next: the first 15 would vanish beside thousands.
    edges = np.arange(steps.size + 1), np.arange(values.shape[1] + 1) + 0.5
    drawn = panel.pcolormesh(*edges, values.T, norm=norm, cmap="viridis", rasterized=True, **limits)  # type: ignore[arg-type]
    _name_steps(panel, steps)
    panel.set_ylabel("layer")
    panel.grid(False)
    figure.colorbar(drawn, ax=panel, label=label)
    return figure


def grid(run: "Run", column: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(recorded steps, values as steps × layers); NaN where a layer is missing."""
    steps, values = by_layer(run.layers, column)
    # A gradient that is no longer finite is left white.
    return steps, np.where(np.isfinite(values), values, np.nan)


def _name_steps(panel: Axes, steps: NDArray[np.float64]) -> None:
    shown = np.unique(np.linspace(0, steps.size - 1, min(6, steps.size)).astype(int))
    panel.set_xticks(shown + 0.5, [f"{steps[i]:.0f}" for i in shown])
    panel.set_xlabel("step (recorded ones)")


@styled
def variance(design: Design) -> Figure:
    """V(q) of a design with the identity and every fixed point: filled where stable, open where not."""
    reach = 3.0 * design.q_star
    points = [point.value for point in design.fixed_points]
    if points:
        reach = max(reach, 1.3 * max(points))
    figure, (panel,) = panels(1, 1, _SIZE[1], width=_SIZE[0])
    identity_line(panel, 0.0, reach)
    q = np.linspace(0.0, reach, 400)
    panel.plot(q, variance_map(design.phi(), q, design.sigma_w, design.sigma_b), color=BLUE, label="V(q)")
    for point in design.fixed_points:
        mark(panel, point.value, point.value, BLUE, stable=point.stability is Stability.STABLE)
    panel.set_xlabel("q")
    panel.set_ylabel("V(q)")
    panel.set_xlim(0.0, reach)
    panel.set_ylim(0.0, reach)
    panel.legend(loc="upper left")
    return figure
