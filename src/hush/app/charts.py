"""The page's pictures; each function draws one part of an `Outlook`.

Colours are close to Okabe and Ito's, which the colour-blind can tell apart, in shades that read on white and black.
"""

import math

import numpy as np
from scipy.interpolate import CubicSpline

from hush.app.drawing import Area, Axis, Line, Mark, Note, axis, draw
from hush.app.outlook import Curve, Outlook
from hush.theory import FixedPoints, Stability
from hush.theory.training_rule import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10

__all__ = ["activation", "clips", "correlation", "edge", "gain", "q", "variance"]

_BLUE, _ORANGE, _GREEN, _RED, _GREY = "#2a8ac9", "#d98c00", "#009e73", "#d55e00", "#8a8a8a"
_DASHED, _DOTTED = "7 5", "2 4"
_BOLD = 2.5
_MARKS = {
    Stability.STABLE: ("circle", _GREEN),
    Stability.UNSTABLE: ("ring", _RED),
    Stability.STABLE_FROM_BELOW: ("up", _ORANGE),
    Stability.STABLE_FROM_ABOVE: ("down", _ORANGE),
    Stability.NEUTRAL: ("diamond", _GREY),
}


def variance(outlook: Outlook, label: str) -> str:
    """V(q), the diagonal, every fixed point and the cobweb."""
    curve, cobweb = outlook.variance, outlook.cobweb
    ends = curve.x[[0, -1]]
    low, high = ends.tolist()
    across, up = (Axis(title, low, high, outlook.logarithmic) for title in ("q of a layer", "q of the next"))
    everywhere = outlook.fixed_points.continuum
    middle = math.sqrt(low * high) if outlook.logarithmic else 0.5 * (low + high)
    return draw(
        across,
        up,
        label,
        Line(ends, ends, _GREY, "V(q) = q", dash=_DASHED),
        Line(curve.x, curve.y, _BLUE, "V(q)", _BOLD),
        Line(cobweb.x, cobweb.y, _ORANGE, "q from layer to layer", 1.6),
        *_points(outlook.fixed_points),
        *([Note(middle, low, str(outlook.fixed_points), _GREY, shift=-1.0)] if everywhere else []),
    )


def correlation(outlook: Outlook, label: str) -> str | None:
    """R(ρ) at the q reached, and its fixed points; None where q runs away or dies out."""
    if outlook.correlation is None or outlook.correlations is None:
        return None
    curve, ends = outlook.correlation, np.array([-1.0, 1.0])
    return draw(
        Axis("ρ of two inputs in a layer", -1.04, 1.04),
        axis("ρ in the next", curve.y, ends),
        label,
        Line(ends, ends, _GREY, "R(ρ) = ρ", dash=_DASHED),
        Line(curve.x, curve.y, _BLUE, "R(ρ)", _BOLD),
        *_points(outlook.correlations),
    )


def q(outlook: Outlook, label: str) -> str:
    """The bands of q against depth."""
    quantiles, reached = outlook.finite.q_quantiles, outlook.q_reached
    wide = max(quantiles[0.95]) > 30 * max(min(quantiles[0.05]), 1e-300)
    up = axis("q", quantiles[0.05], quantiles[0.95], reached or quantiles[0.5], logarithmic=wide)
    level = [Line((1, outlook.finite.depth), (reached, reached), _GREY, "q*", dash=_DASHED)] if reached else []
    return draw(_layers(outlook), up, label, *_bands(quantiles), *level)


def gain(outlook: Outlook, label: str) -> str:
    """The bands of the gradient's gain on its way back, with the lines beyond which it explodes or vanishes."""
    quantiles, depth = outlook.finite.gain_quantiles, outlook.finite.depth
    limits = {"explodes": EXPLODING_GAIN_LOG10}
    if min(quantiles[0.05]) < VANISHING_GAIN_LOG10 / 2:
        limits["vanishes"] = VANISHING_GAIN_LOG10
    lines: list[Line | Note] = []
    for word, level in limits.items():
        lines.append(Line((1, depth), (level, level), _RED, word, dash=_DOTTED))
        lines.append(Note(depth, level, word, _RED, "end", -0.4 if level > 0.0 else 1.1))
    # A little more above the upper line, for its word.
    up = axis("log₁₀ |δ_l|²/|δ_L|²", quantiles[0.05], quantiles[0.95], 1.1 * np.array(list(limits.values())))
    return draw(_layers(outlook), up, label, *_bands(quantiles), *lines)


def activation(outlook: Outlook, label: str) -> str:
    """φ, and the Gaussian of its input behind."""
    x, y = outlook.silhouette.x, outlook.silhouette.y
    bell = max(float(y.max()), 1e-9) * np.exp(-0.5 * x**2 / outlook.design.q_star)
    behind = Area(x, np.zeros_like(x), bell, _BLUE, 0.18)
    return draw(axis("x", x), axis("φ(x)", y, bell), label, behind, Line(x, y, _BLUE, "φ", _BOLD))


def clips(outlook: Outlook, label: str) -> str | None:
    """V′(q*) and V″(q*) on the Edge of Chaos against m; None without a clip."""
    slope, curvature, clip = outlook.slope_of_clip, outlook.curvature_of_clip, outlook.design.clip
    if slope is None or curvature is None or clip is None:
        return None
    low, high = min(0.0, float(curvature.y.min())), max(1.0, float(curvature.y.max()))
    things: list[Line | Note] = [
        _smooth(slope, _BLUE, "V′"),
        _smooth(curvature, _ORANGE, "V″"),
        Line((clip, clip), (low, high), _GREY, "m"),
        Note(clip, high, "m", _GREY, shift=-0.4),
    ]
    safe = None if outlook.safe_clip is None else outlook.safe_clip.value
    if safe is not None and abs(safe - clip) > 1e-9:
        things.append(Line((safe, safe), (low, high), _GREEN, "largest safe m", dash=_DOTTED))
        things.append(Note(safe, high, "safe", _GREEN, "end" if safe < clip else "start", -0.4))
    up = axis("V′(q*), V″(q*)", [low, high + 0.06 * (high - low)])
    return draw(axis("clip m", slope.x, [clip]), up, label, *things)


def edge(outlook: Outlook, label: str) -> str:
    """The Edge of Chaos of φ in the (σ_w, σ_b) plane, and where the network stands."""
    w, b = outlook.sigma_w, outlook.sigma_b
    # The curve runs off to infinity: show a few times what matters.
    across = Axis("σ_w", 0.0, 2.0 * max(w, outlook.design.sigma_w))
    up = Axis("σ_b", 0.0, 2.0 * max(b, outlook.design.sigma_b, 0.1))
    here = Mark(w, b, "circle", _GREEN if outlook.settings.on_edge else _RED, "this network")
    return draw(across, up, label, Line(outlook.edge.x, outlook.edge.y, _BLUE, "Edge of Chaos", _BOLD), here)


def _smooth(curve: Curve, colour: str, title: str) -> Line:
    """Through a few points of a curve over log x."""
    x = np.geomspace(curve.x[0], curve.x[-1], 120)
    return Line(x, CubicSpline(np.log(curve.x), curve.y)(np.log(x)), colour, title, _BOLD)


def _layers(outlook: Outlook) -> Axis:
    return Axis("layer", 1.0, float(outlook.finite.depth))


def _points(points: FixedPoints) -> list[Mark]:
    """One mark for each fixed point, its shape and colour telling the stability."""
    return [Mark(p.value, p.value, *_MARKS[p.stability], f"{points.variable} = {p}") for p in points]


def _bands(quantiles: dict[float, tuple[float, ...]]) -> list[Area | Line]:
    """The 5–95 % and 10–90 % bands of a figure against depth, and its median."""
    layers = np.arange(1.0, len(quantiles[0.5]) + 1)
    return [
        Area(layers, quantiles[0.05], quantiles[0.95], _BLUE, 0.18),
        Area(layers, quantiles[0.1], quantiles[0.9], _BLUE, 0.22),
        Line(layers, quantiles[0.5], _BLUE, "median", _BOLD),
    ]
