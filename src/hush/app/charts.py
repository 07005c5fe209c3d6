"""The page's pictures, as Plotly figures; each function draws one part of an `Outlook`.

A figure is put together as plain dictionaries and handed to Plotly once: adding to it trace by trace costs several
times as much, and the page is to follow a moving slider.

Colours are close to Okabe and Ito's, which the colour-blind can tell apart, in shades that read on white and black.
"""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from hush.app.outlook import Curve, Outlook
from hush.theory import FixedPoints, Stability
from hush.theory.finite_width import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10

__all__ = ["activation", "clips", "correlation", "edge", "gain", "q", "variance"]

_BLUE, _ORANGE, _GREEN, _RED, _GREY = "#2a8ac9", "#d98c00", "#009e73", "#d55e00", "#8a8a8a"
_BAND, _INNER = "rgba(42, 138, 201, 0.18)", "rgba(42, 138, 201, 0.32)"
_MARKS = {
    Stability.STABLE: ("circle", _GREEN),
    Stability.UNSTABLE: ("circle-open", _RED),
    Stability.STABLE_FROM_BELOW: ("triangle-up", _ORANGE),
    Stability.STABLE_FROM_ABOVE: ("triangle-down", _ORANGE),
    Stability.NEUTRAL: ("diamond", _GREY),
}

Trace = dict[str, Any]


def variance(outlook: Outlook) -> go.Figure:
    """V(q), the diagonal, every fixed point and the cobweb."""
    curve = outlook.variance
    ends = curve.x[[0, -1]]
    traces = [
        _line(Curve(ends, ends), "V(q) = q", _GREY, dash="dash"),
        _line(curve, "V(q)", _BLUE, width=2.5),
        _line(outlook.cobweb, "cobweb", _ORANGE, width=1.6),
        *_points(outlook.fixed_points),
    ]
    axis = {"type": "log", "exponentformat": "power"} if outlook.logarithmic else {}
    axis["range"] = (np.log10(ends) if outlook.logarithmic else ends).tolist()
    notes = [_note(0.5, 0.1, str(outlook.fixed_points), _GREY)] if outlook.fixed_points.continuum else []
    return _figure("q of a layer", "q of the next", traces, x=axis, y=axis, annotations=notes)


def correlation(outlook: Outlook) -> go.Figure | None:
    """R(ρ) at the q reached, and its fixed points; None where q runs away or dies out."""
    if outlook.correlation is None or outlook.correlations is None:
        return None
    ends = np.array([-1.0, 1.0])
    traces = [
        _line(Curve(ends, ends), "R(ρ) = ρ", _GREY, dash="dash"),
        _line(outlook.correlation, "R(ρ)", _BLUE, width=2.5),
        *_points(outlook.correlations),
    ]
    return _figure("ρ of two inputs in a layer", "ρ in the next", traces, x={"range": [-1.04, 1.04]})


def q(outlook: Outlook) -> go.Figure:
    """The bands of q against depth."""
    quantiles = outlook.finite.q_quantiles
    traces = _bands(quantiles)
    if outlook.q_reached:
        traces.append(_level(outlook.q_reached, outlook.finite.depth, "q*", _GREY, "dash"))
    wide = max(quantiles[0.95]) > 30 * max(min(quantiles[0.05]), 1e-300)
    return _figure("layer", "q", traces, y={"type": "log", "exponentformat": "power"} if wide else {})


def gain(outlook: Outlook) -> go.Figure:
    """The bands of the gradient's gain on its way back, with the lines beyond which it explodes or vanishes."""
    quantiles, depth = outlook.finite.gain_quantiles, outlook.finite.depth
    traces = [*_bands(quantiles), _level(EXPLODING_GAIN_LOG10, depth, "explodes", _RED, "dot")]
    notes = [_note(depth, EXPLODING_GAIN_LOG10, "explodes", _RED, on_axes=True, anchor="bottom")]
    if min(quantiles[0.05]) < VANISHING_GAIN_LOG10 / 2:
        traces.append(_level(VANISHING_GAIN_LOG10, depth, "vanishes", _RED, "dot"))
        notes.append(_note(depth, VANISHING_GAIN_LOG10, "vanishes", _RED, on_axes=True, anchor="top"))
    return _figure("layer", "log₁₀ |δ_l|²/|δ_L|²", traces, annotations=notes)


def activation(outlook: Outlook) -> go.Figure:
    """φ, and the Gaussian of its input behind."""
    x = outlook.silhouette.x
    top = max(float(np.max(outlook.silhouette.y)), 1e-9)
    bell = _line(Curve(x, top * np.exp(-0.5 * x**2 / outlook.design.q_star)), "input", _GREY, width=0)
    bell |= {"fill": "tozeroy", "fillcolor": _BAND, "hoverinfo": "skip"}
    return _figure("x", "φ(x)", [bell, _line(outlook.silhouette, "φ", _BLUE, width=2.5)])


def clips(outlook: Outlook) -> go.Figure | None:
    """V′(q*) and V″(q*) on the Edge of Chaos against m; None without a clip."""
    slope, curvature, clip = outlook.slope_of_clip, outlook.curvature_of_clip, outlook.design.clip
    if slope is None or curvature is None or clip is None:
        return None
    low, high = min(0.0, float(curvature.y.min())), max(1.0, float(curvature.y.max()))
    traces = [
        _line(slope, "V′", _BLUE, width=2.5, shape="spline"),
        _line(curvature, "V″", _ORANGE, width=2.5, shape="spline"),
        _line(Curve(np.array([clip, clip]), np.array([low, high])), "m", _GREY),
    ]
    notes = [_note(clip, high, "m", _GREY, on_axes=True, anchor="bottom")]
    safe = None if outlook.safe_clip is None else outlook.safe_clip.value
    if safe is not None and abs(safe - clip) > 1e-9:
        traces.append(_line(Curve(np.array([safe, safe]), np.array([low, high])), "largest safe m", _GREEN, dash="dot"))
        notes.append(_note(safe, low, "safe", _GREEN, on_axes=True, anchor="top"))
    return _figure("clip m", "V′(q*), V″(q*)", traces, annotations=notes)


def edge(outlook: Outlook) -> go.Figure:
    """The Edge of Chaos of φ in the (σ_w, σ_b) plane, and where the network stands."""
    w, b = outlook.sigma_w, outlook.sigma_b
    colour = _GREEN if outlook.settings.on_edge else _RED
    here = {"type": "scatter", "x": [w], "y": [b], "mode": "markers", "marker": {"size": 11, "color": colour}}
    traces = [_line(outlook.edge, "Edge of Chaos", _BLUE, width=2.5), here | {"name": "this network"}]
    # The curve runs off to infinity: show a few times what matters.
    reach = {"range": [0.0, 2.0 * max(w, outlook.design.sigma_w)]}
    height = {"range": [0.0, 2.0 * max(b, outlook.design.sigma_b, 0.1)]}
    return _figure("σ_w", "σ_b", traces, x=reach, y=height)


def _figure(
    x_title: str,
    y_title: str,
    traces: list[Trace],
    *,
    x: dict[str, Any] | None = None,
    y: dict[str, Any] | None = None,
    annotations: list[dict[str, Any]] | None = None,
) -> go.Figure:
    plain = {"automargin": True, "zeroline": False}
    layout = {
        # Streamlit puts its own template over it; Plotly's would be sent along for nothing.
        "template": "none",
        "height": 300,
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "xaxis": {"title": {"text": x_title, "standoff": 4}, **plain, **(x or {})},
        "yaxis": {"title": {"text": y_title, "standoff": 4}, **plain, **(y or {})},
        "annotations": annotations or [],
    }
    return go.Figure({"data": traces, "layout": layout})


def _line(
    curve: Curve, name: str, colour: str, *, width: float = 1.5, dash: str = "solid", shape: str = "linear"
) -> Trace:
    line = {"color": colour, "width": width, "dash": dash, "shape": shape, "simplify": False}
    return {"type": "scatter", "mode": "lines", "x": curve.x, "y": curve.y, "line": line, "name": name}


def _level(value: float, depth: int, name: str, colour: str, dash: str) -> Trace:
    """A horizontal line over all layers."""
    return _line(Curve(np.array([1.0, depth]), np.array([value, value])), name, colour, dash=dash)


def _note(
    x: float, y: float, text: str, colour: str, *, on_axes: bool = False, anchor: str = "middle"
) -> dict[str, Any]:
    where = {} if on_axes else {"xref": "paper", "yref": "paper"}
    align = "right" if anchor != "middle" and text != "m" else "center"
    font = {"color": colour}
    return {
        "x": x, "y": y, "text": text, "font": font, "showarrow": False, "xanchor": align, "yanchor": anchor, **where
    }  # fmt: skip


def _points(points: FixedPoints) -> list[Trace]:
    """One mark for each fixed point, its shape and colour telling the stability."""
    traces = []
    for point in points:
        symbol, colour = _MARKS[point.stability]
        marker = {"size": 11, "symbol": symbol, "color": colour, "line": {"width": 2, "color": colour}}
        at = {"x": [point.value], "y": [point.value], "hovertemplate": "%{fullData.name}<extra></extra>"}
        name = f"{points.variable} = {point}"
        traces.append({"type": "scatter", "mode": "markers", "marker": marker, "name": name, **at})
    return traces


def _bands(quantiles: dict[float, tuple[float, ...]]) -> list[Trace]:
    """The 5–95 % and 10–90 % bands of a figure against depth, and its median."""
    layers = np.arange(1.0, len(quantiles[0.5]) + 1)
    around = np.concatenate([layers, layers[::-1]])
    traces = []
    for low, high, colour in ((0.05, 0.95, _BAND), (0.1, 0.9, _INNER)):
        outline = Curve(around, np.concatenate([quantiles[high], quantiles[low][::-1]]))
        trace = _line(outline, f"{low:.0%} to {high:.0%}", _GREY, width=0)
        traces.append(trace | {"fill": "toself", "fillcolor": colour, "hoverinfo": "skip"})
    return [*traces, _line(Curve(layers, np.array(quantiles[0.5])), "median", _BLUE, width=2.5)]
