"""The page's numbers and pictures, as HTML."""

import re
from collections.abc import Callable
from html import escape
from typing import TypeVar

from hush.app import charts, stream_charts
from hush.app.settings import Settings
from hush.app.stream_view import StreamView
from hush.app.view import View
from hush.theory import Design
from hush.theory.training_rule import SPARSITY_TOLERANCE, TRAINABLE_ODDS, TYPICAL_CORRELATION

__all__ = ["about", "numbers_and_pictures"]

_CHAIN = (
    "How a sparse network starts: q is the variance of what an activation φ reads, V(q) that in the next layer, ρ the "
    "correlation of two inputs, R(ρ) that in the next layer."
)
_STREAM = (
    "How a sparse network starts: p = |x|²/N is the variance of the residual stream, q that of what an activation φ "
    "reads, s the share of exact zeros, ρ the correlation of two inputs."
)
_BLOCKS = {
    "residual": "x ← x + β W φ(n(x))",
    "feedforward": "x ← x + β W_2 φ(W_1 n(x))",
    "gated": "x ← x + β W_2 (φ(W_1 n(x)) ∘ W_u n(x))",
}
_ODDS = "5–95 % and 10–90 % of initialisations and inputs, median."
_BACK = "The same for the gradient's gain on its way back; above 3, its norm has grown thirtyfold."
_BACK_ALONG_STREAM = "The same for the gradient's gain on its way back; 4.25 is the bound that trained networks gave."

AnyView = TypeVar("AnyView", View, StreamView)


def about(settings: Settings) -> str:
    """The page's title, and a line on what its letters mean."""
    text = _CHAIN
    if settings.has_stream:
        equation = _BLOCKS[settings.block]
        if settings.norm == "none":
            equation = equation.replace("n(x)", "x")
        elif settings.norm.startswith("post"):
            equation = equation.replace("n(x)", "x").replace("x ← x", "x ← n(x") + ")"
        text = f"{_STREAM} Here {equation}."
    return f'<div class="about"><h1>hush explorer</h1><p>{lowered(text)}</p></div>'


def numbers_and_pictures(view: View | StreamView) -> str:
    """All below the verdict."""
    if isinstance(view, StreamView):
        return _numbers(_numbers_of_stream(view)) + _pictures(_pictures_of_stream(view))
    return _numbers(_numbers_of_chain(view)) + _pictures(_pictures_of_chain(view))


def lowered(text: str) -> str:
    """σ_w with the w below the line, the rest as it is."""
    return re.sub("_([A-Za-z0-9]+)", r"<sub>\1</sub>", escape(text))


def _numbers_of_chain(view: View) -> list[tuple[str, str]]:
    design, finite = view.design, view.finite
    safe = None if view.safe_clip is None else view.safe_clip.value
    relative = design.through_scale is not None
    return [
        ("odds to explode", _odds(finite.explode)),
        ("odds to vanish", _odds(finite.vanish)),
        *_parameters(design),
        ("usual m" if relative else "largest safe m", "none" if safe is None else f"{safe:.3f}"),
        ("V′(q*)", f"{design.v_prime:.3f}"),
        ("V″(q*)", f"{round(design.v_second, 3) + 0.0:.3f}"),
        ("σ_w", f"{view.sigma_w:.3f}"),
        ("σ_b", f"{view.sigma_b:.3f}"),
    ]


def _numbers_of_stream(view: StreamView) -> list[tuple[str, str]]:
    design, odds = view.design, view.design.odds
    assert odds is not None  # the page always has a width and a depth
    sigmas = (("σ_in", design.sigma_in2), ("σ_up", design.sigma_up2), ("σ_out", design.sigma_out2))
    return [
        ("odds to explode", _odds(odds.explode)),
        ("odds to vanish", _odds(odds.vanish)),
        ("odds of indistinguishable inputs", _odds(odds.indistinguishable)),
        ("odds to lose the sparsity", _odds(odds.sparsity_lost)),
        *_parameters(design),
        *((name, f"{square**0.5:.3f}") for name, square in sigmas if square is not None),
        ("branch scale β", f"{design.branch_scale:.3f}"),
        ("p at the start", f"{design.stream_start:.3g}"),
        ("p at the end", f"{design.stream_end:.3g}"),
    ]


def _parameters(design: Design) -> list[tuple[str, str]]:
    """τ and m, and of relative ones their unit."""
    unit = "" if design.through_scale is None else " rms"
    clip = "none" if design.clip is None else f"{design.clip:.3f}{unit}"
    return [("threshold τ", f"{design.threshold:.3f}{unit}"), ("clip m", clip)]


def _odds(share: float) -> str:
    return f"{share:.1%}"


def _numbers(rows: list[tuple[str, str]]) -> str:
    """In a row that wraps; odds that keep a network from training stand out."""
    parts = []
    for name, value in rows:
        bad = name.startswith("odds") and float(value.rstrip("%")) > 100.0 * TRAINABLE_ODDS
        kind = ' class="bad"' if bad else ""
        parts.append(f"<div{kind}><dt>{lowered(name)}</dt><dd>{escape(value)}</dd></div>")
    return f'<dl class="numbers">{"".join(parts)}</dl>'


def _pictures_of_chain(view: View) -> list[str]:
    lost = "q runs away or dies out: there is no q at which R could be drawn."
    meeting = lost if view.correlations is None else str(view.correlations)
    return [
        _picture("Variance map V(q)", charts.variance, view, str(view.fixed_points)),
        _picture("Correlation map R(ρ)", charts.correlation, view, meeting),
        _picture("q through the layers", charts.q, view, _ODDS),
        _picture("Gain of the gradient", charts.gain, view, _BACK),
        _picture("Activation φ", charts.activation, view, _fed(view.design)),
        _picture("V′ and V″ against the clip", charts.clips, view, "On the Edge of Chaos: V′ blue, V″ orange.")
        if view.slope_of_clip is not None
        else "",
        _picture("Edge of Chaos", charts.edge, view, "The curve over all q*, and where this network stands."),
    ]


def _pictures_of_stream(view: StreamView) -> list[str]:
    sample = f"5–95 % and 10–90 % of {view.networks} networks with an input each, median."
    pairs = f"From {TYPICAL_CORRELATION:g}, of {view.pairs} pairs; above the dotted line nothing tells them apart."
    zeros = f"Dashed: the target; dotted: {SPARSITY_TOLERANCE:g} from it, where it counts as lost."
    return [
        _picture("Stream variance p", stream_charts.stream, view, sample),
        _picture("Gain of the gradient", stream_charts.gain, view, _BACK_ALONG_STREAM),
        _picture("Sparsity in the blocks", stream_charts.sparsity, view, zeros),
        _picture("q in the blocks", stream_charts.q, view, "Of what φ reads; dashed: q*."),
        _picture("Correlation of two inputs", stream_charts.correlation, view, pairs),
        _picture("Activation φ", stream_charts.activation, view, _fed(view.design)),
    ]


def _fed(design: Design) -> str:
    """What is drawn behind φ, and in which units."""
    unit = "" if design.through_scale is None else " Both in units of the layer's own root mean square."
    return f"Behind: the Gaussian it is fed.{unit}"


def _pictures(pictures: list[str]) -> str:
    return f'<div class="pictures">{"".join(pictures)}</div>'


def _picture(title: str, chart: Callable[[AnyView, str], str | None], view: AnyView, caption: str) -> str:
    drawing = chart(view, f"{title}. {caption}")
    inside = "" if drawing is None else f'<div class="drawing">{drawing}</div>'
    return f"<figure><strong>{escape(title)}</strong>{inside}<figcaption>{escape(caption)}</figcaption></figure>"
