"""On the Edge of Chaos and on either side of it, with the fixed point q* = 1 held.

The paper does not print the (σ_w, σ_b) of its figures. Here χ₁ = σ_w² E[φ′²] is 0.8, 1 and 1.2, and σ_b² is what
keeps V(1) = 1, so that the sides differ in χ₁ alone. Where that σ_b² would be negative no such network exists.
"""

import math
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from hush._style import BLUE, GREEN, RED
from hush.theory import Activation

__all__ = ["SIDES", "Kind", "Side", "side_of", "tell_missing"]


@dataclass(frozen=True)
class Kind:
    """A χ₁ and how its curves look."""

    chi: float
    colour: str
    dashes: Any
    label: str


@dataclass(frozen=True)
class Side:
    """(σ_w, σ_b) of one kind for one activation."""

    kind: Kind
    sigma_w: float
    sigma_b: float


SIDES = (
    Kind(0.8, BLUE, (0, (4, 1.5)), r"ordered, $\chi_1=0.8$"),
    Kind(1.0, GREEN, "-", r"edge of chaos, $\chi_1=1$"),
    Kind(1.2, RED, (0, (4, 1, 1, 1)), r"chaotic, $\chi_1=1.2$"),
)


def side_of(phi: Activation, kind: Kind) -> Side | None:
    """The (σ_w, σ_b) with that χ₁ and V(1) = 1; None where σ_b² would be negative."""
    w2 = kind.chi / phi.slope_moment(1, 1.0)
    b2 = 1.0 - w2 * phi.second_moment(1.0)
    if b2 < -1e-12:
        return None
    return Side(kind, math.sqrt(w2), math.sqrt(max(b2, 0.0)))


def tell_missing(panel: Axes, phi: Activation) -> None:
    """Write into the panel which side does not exist for this activation."""
    for kind in SIDES:
        if side_of(phi, kind) is None:
            words = r"no $\sigma_b^2\geq 0$" + "\n" + rf"at $\chi_1={kind.chi:g}$"
            panel.text(0.97, 0.04, words, transform=panel.transAxes, ha="right", va="bottom", fontsize=7)
