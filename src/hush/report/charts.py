"""The report's pictures: curves over training, heat maps over layers and steps, the variance map of a design."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from hush._style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, identity_line, mark, panels, style, styled
from hush.theory import Design, Stability, variance_map
from hush.train.tables import by_layer

if TYPE_CHECKING:
    from hush.train import Run

__all__ = ["Curve", "HeatMap", "by_step", "draw_curve", "draw_heat_map", "draw_variance_map", "png", "svg"]

_COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
_DASHES = ("-", "--", ":", "-.")
_SIZE = (3.9, 2.7)
# Of more runs than this the names would cover the curves; the table says which is which.
_LEGEND = 7
# A loss that grows this much above the lowest is drawn on a logarithmic axis, which ends so far above the lowest: what
# lies beyond would press all other curves into a line at the bottom.
_EXPLODED = 100.0
_AXIS_END = 1e5


@dataclass(frozen=True)
class Curve:
    """A column of one of a run's tables against another, with the label of its axis and the caption below it."""

    table: Literal["losses", "metrics"]
    x: str
    y: str
    label: str
    caption: str
    is_share: bool = False

    def values(self, run: "Run") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(x, y), without what is not finite."""
        columns = run.losses if self.table == "losses" else run.metrics
        known = np.isfinite(columns[self.y])
        return columns[self.x][known], columns[self.y][known]


@dataclass(frozen=True)
class HeatMap:
    """A column of a run's layers over all steps that were recorded, with the label of its scale and the caption."""

    column: str
    label: str
    caption: str
    logarithmic: bool = False


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
def draw_curve(runs: Sequence["Run"], names: Sequence[str], curve: Curve) -> Figure | None:
    """A line for each run that has any; None where none has. Losses that explode are drawn on a logarithmic axis."""
    legend = 1 < len(runs) <= _LEGEND
    figure, (panel,) = panels(1, 1, _SIZE[1] + (0.14 * len(runs) if legend else 0.0), width=_SIZE[0])
    drawn = [curve.values(run) for run in runs]
    everything = np.concatenate([y for _, y in drawn])
    if not everything.size:
        return None
    end = None if curve.is_share else _end_of_axis(everything)
    for i, ((x, y), name) in enumerate(zip(drawn, names, strict=True)):
        if not y.size:
            continue
        beyond = f" (up to {y.max():.0e})" if end is not None and y.max() > end else ""
        panel.plot(
            x,
            y,
            lw=1.3,
            # A single point is no line; nor are a few at the very start of a long one.
            marker="o" if y.size <= 3 else None,
            markersize=4,
            label=f"{name}{beyond}",
            color=_COLOURS[i % len(_COLOURS)],
            ls=_DASHES[i // len(_COLOURS) % len(_DASHES)],
        )
    panel.set_xlabel(curve.x)
    panel.set_ylabel(curve.label)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if curve.is_share:
        panel.set_ylim(-0.02, 1.02)
    elif end is not None:
        positive = everything[everything > 0.0]
        panel.set_yscale("log")
        panel.set_ylim(float(positive.min()) / 1.5, end)
    if legend:
        figure.legend(loc="outside upper left", fontsize=7, frameon=False)
    return figure


def _end_of_axis(values: NDArray[np.float64]) -> float | None:
    """Where a logarithmic axis for these values ends; None where a linear one does."""
    positive = values[values > 0.0]
    if not positive.size or positive.max() < _EXPLODED * positive.min() or positive.max() < _EXPLODED:
        return None
    return float(min(2.0 * positive.max(), _AXIS_END * positive.min()))


@styled
def draw_heat_map(run: "Run", kind: HeatMap) -> Figure | None:
    """Every layer at every step that was recorded; None where nothing was."""
    steps, values = by_step(run, kind.column)
    if kind.logarithmic:
        values = np.where(values > 0.0, values, np.nan)
    if not np.isfinite(values).any():
        return None
    figure, (panel,) = panels(1, 1, _SIZE[1], width=_SIZE[0])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    norm = LogNorm(low, max(high, low * 1.01)) if kind.logarithmic else Normalize(0.0, 1.0)
    # Each recorded step is one column, whatever the distance to the next: the first 15 would vanish beside thousands.
    edges = np.arange(steps.size + 1), np.arange(values.shape[1] + 1) + 0.5
    drawn = panel.pcolormesh(*edges, values.T, norm=norm, cmap="viridis", rasterized=True)
    _name_steps(panel, steps)
    panel.set_ylabel("layer")
    panel.grid(False)
    figure.colorbar(drawn, ax=panel, label=kind.label)
    return figure


def by_step(run: "Run", column: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(recorded steps, values as steps × layers); NaN where a layer is missing."""
    steps, values = by_layer(run.layers, column)
    # A gradient that is no longer finite is left white.
    return steps, np.where(np.isfinite(values), values, np.nan)


def _name_steps(panel: Axes, steps: NDArray[np.float64]) -> None:
    shown = np.unique(np.linspace(0, steps.size - 1, min(6, steps.size)).astype(int))
    panel.set_xticks(shown + 0.5, [f"{steps[i]:.0f}" for i in shown])
    panel.set_xlabel("step (recorded ones)")


@styled
def draw_variance_map(design: Design) -> Figure:
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
