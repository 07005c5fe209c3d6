"""The pictures of a residual stream; each function draws one part of a `StreamView`."""

import numpy as np

from hush.app.curve import Quantiles, fed_variance
from hush.app.drawing import Axis, Line, Note, axis, draw
from hush.app.drawing_parts import DASHED, DOTTED, GREY, RED, bands, gain_drawing, phi_drawing
from hush.app.stream_view import StreamView
from hush.theory.training_rule import DISTINGUISHABLE_LOG10, EXPLODING_BLOCK_GAIN_LOG10, SPARSITY_TOLERANCE

__all__ = ["activation", "correlation", "gain", "q", "sparsity", "stream"]


def stream(view: StreamView, label: str) -> str:
    """The bands of p after every block."""
    return draw(_passed(view), _variance_axis("p", view.stream), label, *bands(view.stream, 0))


def q(view: StreamView, label: str) -> str:
    """The bands of the pre-activations' variance in every block, and q*."""
    aim = view.design.q_star
    up = _variance_axis("q", view.q, aim)
    return draw(_blocks(view), up, label, *bands(view.q), _level(view, aim, "q*"))


def sparsity(view: StreamView, label: str) -> str:
    """The bands of the share of zeros in every block, the target, and how far from it counts as lost."""
    aim = view.design.sparsity
    ends = (max(aim - SPARSITY_TOLERANCE, 0.0), min(aim + SPARSITY_TOLERANCE, 1.0))
    up = axis("share of zeros", view.sparsity[0.05], view.sparsity[0.95], ends)
    limits = [Line((1, view.settings.depth), (end, end), RED, "lost beyond", dash=DOTTED) for end in ends]
    return draw(_blocks(view), up, label, *bands(view.sparsity), _level(view, aim, "target"), *limits)


def gain(view: StreamView, label: str) -> str:
    """The bands of the gradient's gain on its way back along the stream."""
    return gain_drawing(_passed(view), view.gain, label, 0, EXPLODING_BLOCK_GAIN_LOG10)


def correlation(view: StreamView, label: str) -> str:
    """The bands of the correlation of two inputs, and the line above which nothing tells them apart."""
    limit = 1.0 - 10.0**DISTINGUISHABLE_LOG10
    lowest = min(view.correlation[0.05])
    things: list[Line | Note] = [
        Line((0, view.settings.depth), (limit, limit), RED, "indistinguishable", dash=DOTTED),
        Note(0, limit, "indistinguishable", RED, "start", 1.1),
    ]
    return draw(_passed(view), Axis("ρ", min(lowest - 0.03, 0.0), 1.03), label, *bands(view.correlation, 0), *things)


def activation(view: StreamView, label: str) -> str:
    """φ, and the Gaussian of its input behind."""
    return phi_drawing(view.silhouette, fed_variance(view.design), label)


def _passed(view: StreamView) -> Axis:
    return Axis("blocks passed", 0.0, float(view.settings.depth))


def _blocks(view: StreamView) -> Axis:
    return Axis("block", 1.0, float(view.settings.depth))


def _level(view: StreamView, value: float, title: str) -> Line:
    return Line((1, view.settings.depth), (value, value), GREY, title, dash=DASHED)


def _variance_axis(title: str, quantiles: Quantiles, aim: float | None = None) -> Axis:
    """Logarithmic where the values call for it, and never so narrow that rounding errors look like news."""
    low, high = min(quantiles[0.05]), max(quantiles[0.95])
    if aim is not None:
        low, high = min(low, aim), max(high, aim)
    if high > 30.0 * max(low, 1e-300):
        return axis(title, [low, high], logarithmic=True)
    middle = np.median(quantiles[0.5])
    return axis(title, [min(low, 0.9 * middle), max(high, 1.1 * middle)])
