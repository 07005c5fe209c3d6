"""Line drawings as SVG text: two axes, and curves, areas, marks and notes between them.

A browser paints such a picture in a few milliseconds; a plotting library in the page takes fifty, and the explorer has
seven pictures that follow a moving slider. Curves are stretched to whatever width the window leaves, everything else
keeps its size; colours of the text are the page's.
"""

import re
from dataclasses import dataclass
from html import escape

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator
from numpy.typing import ArrayLike, NDArray

__all__ = ["STYLE", "Area", "Axis", "Line", "Mark", "Note", "axis", "draw"]

Array = NDArray[np.float64]

_HEIGHT = 250
# What curves are rounded to, a fraction of a pixel: the shorter the text, the sooner the browser has read it.
_FINE = 2000
# For the page that shows the drawings, each within an element of the class `drawing`.
STYLE = f"""
.drawing {{height: {_HEIGHT}px; margin: 8px 12px 44px 58px;}}
.drawing svg {{width: 100%; height: 100%; overflow: visible; display: block;}}
.drawing svg svg {{overflow: hidden;}}
.drawing path, .drawing line {{fill: none; vector-effect: non-scaling-stroke;}}
.drawing line {{stroke: currentColor; stroke-opacity: 0.15;}}
.drawing text {{font-size: 12px; fill: currentColor;}}
"""
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SHAPES = {
    "circle": "M-5 0A5 5 0 1 0 5 0A5 5 0 1 0 -5 0Z",
    "ring": "M-5 0A5 5 0 1 0 5 0A5 5 0 1 0 -5 0Z",
    "up": "M-6 5L6 5L0 -6Z",
    "down": "M-6 -5L6 -5L0 6Z",
    "diamond": "M-6 0L0 -6L6 0L0 6Z",
}


@dataclass(frozen=True)
class Axis:
    """A range of values, linear or logarithmic."""

    title: str
    low: float
    high: float
    logarithmic: bool = False

    def place(self, values: ArrayLike) -> Array:
        """0 at the low end, 1 at the high one."""
        low, high = self._scale(self.low), self._scale(self.high)
        return np.asarray((self._scale(values) - low) / (high - low))

    def ticks(self) -> list[tuple[float, str]]:
        """(value, label) of five or so."""
        if not self.logarithmic:
            values = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
            shown = [float(v) for v in values if self.low <= v <= self.high]
            return [(v, f"{round(v, 10) + 0.0:g}".replace("-", "−")) for v in shown]
        decades = np.log10(self.high / self.low)
        subs = (1.0,) if decades >= 2.0 else (1.0, 2.0, 5.0)
        values = LogLocator(subs=subs, numticks=6).tick_values(self.low, self.high)
        return [(v, _power(v)) for v in map(float, values) if self.low <= v <= self.high]

    def _scale(self, values: ArrayLike) -> Array:
        values = np.asarray(values, dtype=np.float64)
        return np.log10(np.maximum(values, 1e-300)) if self.logarithmic else values


def axis(title: str, *values: ArrayLike, logarithmic: bool = False) -> Axis:
    """An axis that holds all of these values with a little room around."""
    finite = np.concatenate([np.ravel(np.asarray(v, dtype=np.float64)) for v in values])
    finite = finite[np.isfinite(finite) & ((finite > 0.0) | (not logarithmic))]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (1.0, 1.0)
    if logarithmic:
        room = max((high / low) ** 0.04, 1.05)
        return Axis(title, low / room, high * room, logarithmic=True)
    room = 0.04 * (high - low) or 0.1 * abs(low) or 0.1
    return Axis(title, low - room, high + room)


@dataclass(frozen=True)
class Line:
    """A curve; it breaks where a value is not finite. `dash` is that of SVG, such as "6 4"."""

    x: ArrayLike
    y: ArrayLike
    colour: str
    title: str
    width: float = 1.5
    dash: str = ""


@dataclass(frozen=True)
class Area:
    """What lies between two curves."""

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike
    colour: str
    opacity: float


@dataclass(frozen=True)
class Mark:
    """One point: a circle, ring, diamond, or a triangle that points up or down."""

    x: float
    y: float
    shape: str
    colour: str
    title: str


@dataclass(frozen=True)
class Note:
    """A few words at a point.

    Attributes:
        align: start, middle or end.
        shift: how far below the point, in heights of the text.
    """

    x: float
    y: float
    text: str
    colour: str
    align: str = "middle"
    shift: float = 0.35


def draw(x: Axis, y: Axis, label: str, *things: Line | Area | Mark | Note) -> str:
    """The drawing; `label` is what a screen reader says."""
    parts = [f'<svg role="img" aria-label="{escape(label)}">', *_grid(x, y)]
    parts.append(f'<svg viewBox="0 0 {_FINE} {_FINE}" preserveAspectRatio="none">')
    parts += [_curve(x, y, thing) for thing in things if isinstance(thing, Line | Area)]
    parts.append("</svg>")
    parts += [_mark(x, y, thing) if isinstance(thing, Mark) else _note(x, y, thing)
              for thing in things if isinstance(thing, Mark | Note)]  # fmt: skip
    return "".join([*parts, "</svg>"])


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for value, label in x.ticks():
        at = _percent(x, value)
        parts.append(f'<line x1="{at}" x2="{at}" y1="0" y2="100%"/>')
        parts.append(f'<text x="{at}" y="100%" dy="1.4em" text-anchor="middle">{label}</text>')
    for value, label in y.ticks():
        at = _percent(y, value, down=True)
        parts.append(f'<line x1="0" x2="100%" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="0" y="{at}" dx="-6" dy="0.35em" text-anchor="end">{label}</text>')
    parts.append(f'<text x="50%" y="100%" dy="3em" text-anchor="middle">{_lowered(x.title)}</text>')
    middle = f'x="-{_HEIGHT // 2}" y="-44" text-anchor="middle"'
    parts.append(f'<text transform="rotate(-90)" {middle}>{_lowered(y.title)}</text>')
    return parts


def _lowered(title: str) -> str:
    """σ_w with the w small and below the line."""
    # By dy, which every browser knows; the empty character after it brings the line back up.
    small = r'<tspan dy="0.25em" font-size="75%">\1</tspan><tspan dy="-0.19em">&#8203;</tspan>'
    return re.sub("_([A-Za-z0-9])", small, escape(title))


def _curve(x: Axis, y: Axis, thing: Line | Area) -> str:
    if isinstance(thing, Area):
        across = np.concatenate([np.asarray(thing.x), np.asarray(thing.x)[::-1]])
        around = np.concatenate([np.asarray(thing.low), np.asarray(thing.high)[::-1]])
        style = f"fill:{thing.colour};fill-opacity:{thing.opacity:g}"
        return f'<path d="{_path(x, y, across, around)}Z" style="{style}"/>'
    dash = f' stroke-dasharray="{thing.dash}"' if thing.dash else ""
    stroke = f'stroke="{thing.colour}" stroke-width="{thing.width:g}"{dash}'
    return f'<path d="{_path(x, y, thing.x, thing.y)}" {stroke}><title>{escape(thing.title)}</title></path>'


def _path(x: Axis, y: Axis, xs: ArrayLike, ys: ArrayLike) -> str:
    # Points far outside the picture are moved to just outside of it: nobody sees them, and their numbers stay short.
    places = np.stack([np.clip(x.place(xs), -2.0, 3.0), 1.0 - np.clip(y.place(ys), -2.0, 3.0)], axis=1)
    broken = np.isnan(places[:, 0] + places[:, 1])
    runs = np.split(places, np.flatnonzero(broken[1:] != broken[:-1]) + 1)
    whole = [np.rint(_FINE * run).astype(int).ravel().tolist() for run in runs if not np.isnan(run).any()]
    return "".join("M" + " ".join(map(str, run)) for run in whole)


def _mark(x: Axis, y: Axis, mark: Mark) -> str:
    if not (0.0 <= x.place(mark.x) <= 1.0 and 0.0 <= y.place(mark.y) <= 1.0):
        return ""
    fill = "transparent" if mark.shape == "ring" else mark.colour
    style = f'stroke="{mark.colour}" stroke-width="2" style="fill:{fill}"'
    where = f'x="{_percent(x, mark.x)}" y="{_percent(y, mark.y, down=True)}"'
    # An empty SVG within the SVG: only it can stand at a percentage.
    shape = f'<path d="{_SHAPES[mark.shape]}" {style}><title>{escape(mark.title)}</title></path>'
    return f'<svg {where} style="overflow:visible">{shape}</svg>'


def _note(x: Axis, y: Axis, note: Note) -> str:
    where = f'x="{_percent(x, note.x)}" y="{_percent(y, note.y, down=True)}" dy="{note.shift:g}em"'
    return f'<text {where} text-anchor="{note.align}" style="fill:{note.colour}">{escape(note.text)}</text>'


def _percent(along: Axis, value: float, *, down: bool = False) -> str:
    share = float(along.place(value))
    return f"{100.0 * (1.0 - share if down else share):.2f}%"


def _power(value: float) -> str:
    """0.01, 1, 500, 10⁶."""
    if 1e-3 < value < 1e4:
        return f"{value:g}"
    exponent = int(np.floor(np.log10(value) + 1e-9))
    factor = value / 10.0**exponent
    return ("" if abs(factor - 1.0) < 1e-6 else f"{factor:g}·") + "10" + str(exponent).translate(_SUPERSCRIPT)
