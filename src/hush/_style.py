"""How every figure looks: the Okabe–Ito colours, which colour-blind readers tell apart, at the size of a printed page.

Figures are built without pyplot, inside an rc_context: no window, no global state.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hush.theory import entry_of

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "ORANGE",
    "PURPLE",
    "RED",
    "SKY",
    "WIDTH",
    "identity_line",
    "mark",
    "name_of",
    "panels",
    "shades",
    "style",
    "styled",
]

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

# The width of a page's text in inches; 8 points at this width stay 8 points in print.
WIDTH = 7.0

_RC: dict[Any, Any] = {
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "figure.dpi": 100,
    "font.size": 9,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.framealpha": 0.9,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    # The same figure gives the same file.
    "svg.hashsalt": "hush",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}

_Arguments = ParamSpec("_Arguments")
_Drawn = TypeVar("_Drawn", bound=Figure | None)


@contextmanager
def style() -> Iterator[None]:
    """The style while the block runs, and afterwards what was there before."""
    with mpl.rc_context(_RC):
        yield


def styled(function: Callable[_Arguments, _Drawn]) -> Callable[_Arguments, _Drawn]:
    """`function` drawing in the style."""

    @wraps(function)
    def inside(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Drawn:
        with style():
            return function(*args, **kwargs)

    return inside


def panels(
    rows: int, columns: int, height: float, *, width: float = WIDTH, **options: Any
) -> tuple[Figure, Sequence[Axes]]:
    """A figure of rows × columns panels, and the panels row by row; `options` go to `Figure.subplots`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(np.ravel(axes))


def identity_line(axes: Axes, low: float, high: float, label: str | None = "identity") -> None:
    """The dashed diagonal, behind the curves."""
    axes.plot([low, high], [low, high], color=BLACK, ls="--", lw=0.9, zorder=1, label=label)


def mark(axes: Axes, x: float, y: float, colour: str, *, stable: bool = True) -> None:
    """A fixed point on a curve: a filled dot where it is stable, an open one where it is not."""
    axes.plot(
        [x], [y], "o", color=colour, mfc=colour if stable else "white", mec=colour, mew=1.2, zorder=5, clip_on=False
    )


def name_of(activation: str) -> str:
    """The activation's name as the paper writes it."""
    return entry_of(activation).symbol


def shades(count: int) -> list[Any]:
    """`count` colours in order, dark to light, that keep their order in grey too."""
    return [mpl.colormaps["viridis"](share) for share in np.linspace(0.0, 0.88, count)]
