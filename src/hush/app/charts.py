"""The pictures of a chain; each function draws one part of a `View`."""

import math

import numpy as np
from scipy.interpolate import CubicSpline

from hush.app.curve import Curve, fed_variance
from hush.app.drawing import Axis, Line, Mark, Note, axis, draw
from hush.app.drawing_parts import (
    BLUE,
    BOLD,
    DASHED,
    DOTTED,
    GREEN,
    GREY,
    ORANGE,
    RED,
    bands,
    gain_drawing,
    phi_drawing,
)
from hush.app.view import View
from hush.theory import FixedPoints, Stability

__all__ = ["activation", "clips", "correlation", "edge", "gain", "q", "variance"]

_MARKS = {
    Stability.STABLE: ("circle", GREEN),
    Stability.UNSTABLE: ("ring", RED),
    Stability.STABLE_FROM_BELOW: ("up", ORANGE),
    Stability.STABLE_FROM_ABOVE: ("down", ORANGE),
    Stability.NEUTRAL: ("diamond", GREY),
}


def variance(view: View, label: str) -> str:
    """V(q), the diagonal, every fixed point and the cobweb."""
    curve, cobweb = view.variance, view.cobweb
    ends = curve.x[[0, -1]]
    low, high = ends.tolist()
    across, up = (Axis(title, low, high, view.logarithmic) for title in ("q of a layer", "q of the next"))
    everywhere = view.fixed_points.continuum
    middle = math.sqrt(low * high) if view.logarithmic else 0.5 * (low + high)
    return draw(
        across,
        up,
        label,
        Line(ends, ends, GREY, "V(q) = q", dash=DASHED),
        Line(curve.x, curve.y, BLUE, "V(q)", BOLD),
        Line(cobweb.x, cobweb.y, ORANGE, "q from layer to layer", 1.6),
        *_points(view.fixed_points),
        *([Note(middle, low, str(view.fixed_points), GREY, shift=-1.0)] if everywhere else []),
    )


def correlation(view: View, label: str) -> str | None:
    """R(ρ) at the q reached, and its fixed points; None where q runs away or dies out."""
    if view.correlation is None or view.correlations is None:
        return None
    curve, ends = view.correlation, np.array([-1.0, 1.0])
    return draw(
        Axis("ρ of two inputs in a layer", -1.04, 1.04),
        axis("ρ in the next", curve.y, ends),
        label,
        Line(ends, ends, GREY, "R(ρ) = ρ", dash=DASHED),
        Line(curve.x, curve.y, BLUE, "R(ρ)", BOLD),
        *_points(view.correlations),
    )


def q(view: View, label: str) -> str:
    """The bands of q against depth."""
    quantiles, reached = view.finite.q_quantiles, view.q_reached
    wide = max(quantiles[0.95]) > 30 * max(min(quantiles[0.05]), 1e-300)
    up = axis("q", quantiles[0.05], quantiles[0.95], reached or quantiles[0.5], logarithmic=wide)
    level = [Line((1, view.finite.depth), (reached, reached), GREY, "q*", dash=DASHED)] if reached else []
    return draw(_layers(view), up, label, *bands(quantiles), *level)


def gain(view: View, label: str) -> str:
    """The bands of the gradient's gain on its way back, with the lines beyond which it explodes or vanishes."""
    return gain_drawing(_layers(view), view.finite.gain_quantiles, label)


def activation(view: View, label: str) -> str:
    """φ, and the Gaussian of its input behind."""
    return phi_drawing(view.silhouette, fed_variance(view.design), label)


def clips(view: View, label: str) -> str | None:
    """V′(q*) and V″(q*) on the Edge of Chaos against m; None without a clip."""
    slope, curvature, clip = view.slope_of_clip, view.curvature_of_clip, view.design.clip
    if slope is None or curvature is None or clip is None:
        return None
    low, high = min(0.0, float(curvature.y.min())), max(1.0, float(curvature.y.max()))
    things: list[Line | Note] = [
        _smooth(slope, BLUE, "V′"),
        _smooth(curvature, ORANGE, "V″"),
        Line((clip, clip), (low, high), GREY, "m"),
        Note(clip, high, "m", GREY, shift=-0.4),
    ]
    safe = None if view.safe_clip is None else view.safe_clip.value
    if safe is not None and abs(safe - clip) > 1e-9:
        relative = view.design.through_scale is not None
        title, word = ("usual m", "usual") if relative else ("largest safe m", "safe")
        things.append(Line((safe, safe), (low, high), GREEN, title, dash=DOTTED))
        things.append(Note(safe, high, word, GREEN, "end" if safe < clip else "start", -0.4))
    up = axis("V′(q*), V″(q*)", [low, high + 0.06 * (high - low)])
    return draw(axis("clip m", slope.x, [clip]), up, label, *things)


def edge(view: View, label: str) -> str:
    """The Edge of Chaos of φ in the (σ_w, σ_b) plane, and where the network stands."""
    w, b = view.sigma_w, view.sigma_b
    # The curve runs off to infinity: show a few times what matters.
    across = Axis("σ_w", 0.0, 2.0 * max(w, view.design.sigma_w))
    up = Axis("σ_b", 0.0, 2.0 * max(b, view.design.sigma_b, 0.1))
    here = Mark(w, b, "circle", GREEN if view.settings.on_edge else RED, "this network")
    return draw(across, up, label, Line(view.edge.x, view.edge.y, BLUE, "Edge of Chaos", BOLD), here)


def _smooth(curve: Curve, colour: str, title: str) -> Line:
    """Through a few points of a curve over log x."""
    x = np.geomspace(curve.x[0], curve.x[-1], 120)
    return Line(x, CubicSpline(np.log(curve.x), curve.y)(np.log(x)), colour, title, BOLD)


def _layers(view: View) -> Axis:
    return Axis("layer", 1.0, float(view.finite.depth))


def _points(points: FixedPoints) -> list[Mark]:
    """One mark for each fixed point, its shape and colour telling the stability."""
    return [Mark(p.value, p.value, *_MARKS[p.stability], f"{points.variable} = {p}") for p in points]
