"""What the pictures of chains and of residual streams have in common: colours, bands, the gain and φ.

Colours are close to Okabe and Ito's, which the colour-blind can tell apart, in shades that read on white and black.
"""

import numpy as np
from numpy.typing import ArrayLike

from hush.app.curve import Curve, Quantiles
from hush.app.drawing import Area, Axis, Line, Note, axis, draw
from hush.theory.training_rule import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10

__all__ = [
    "BLUE", "BOLD", "DASHED", "DOTTED", "GREEN", "GREY", "ORANGE", "RED", "bands", "gain_drawing", "phi_drawing",
]  # fmt: skip

BLUE, ORANGE, GREEN, RED, GREY = "#2a8ac9", "#d98c00", "#009e73", "#d55e00", "#8a8a8a"
DASHED, DOTTED = "7 5", "2 4"
BOLD = 2.5


def bands(quantiles: Quantiles, first: int = 1) -> list[Area | Line]:
    """The 5–95 % and 10–90 % bands of a figure against depth, and its median; layers are counted from `first`."""
    layers: ArrayLike = np.arange(float(first), len(quantiles[0.5]) + first)
    return [
        Area(layers, quantiles[0.05], quantiles[0.95], BLUE, 0.18),
        Area(layers, quantiles[0.1], quantiles[0.9], BLUE, 0.22),
        Line(layers, quantiles[0.5], BLUE, "median", BOLD),
    ]


def gain_drawing(
    across: Axis, quantiles: Quantiles, label: str, first: int = 1, exploding: float = EXPLODING_GAIN_LOG10
) -> str:
    """The bands of the gradient's gain on its way back, with the lines beyond which it explodes or vanishes."""
    limits = {"explodes": exploding}
    if min(quantiles[0.05]) < VANISHING_GAIN_LOG10 / 2:
        limits["vanishes"] = VANISHING_GAIN_LOG10
    lines: list[Line | Note] = []
    for word, level in limits.items():
        lines.append(Line((across.low, across.high), (level, level), RED, word, dash=DOTTED))
        lines.append(Note(across.high, level, word, RED, "end", -0.4 if level > 0.0 else 1.1))
    # A little more above the upper line, for its word.
    up = axis("log₁₀ |δ_l|²/|δ_L|²", quantiles[0.05], quantiles[0.95], 1.1 * np.array(list(limits.values())))
    return draw(across, up, label, *bands(quantiles, first), *lines)


def phi_drawing(curve: Curve, q: float, label: str) -> str:
    """φ, and the Gaussian of its input behind."""
    x, y = curve.x, curve.y
    bell = max(float(y.max()), 1e-9) * np.exp(-0.5 * x**2 / q)
    behind = Area(x, np.zeros_like(x), bell, BLUE, 0.18)
    return draw(axis("x", x), axis("φ(x)", y, bell), label, behind, Line(x, y, BLUE, "φ", BOLD))
