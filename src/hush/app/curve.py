"""What is drawn: lines and bands, and the line of φ."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hush.theory import Activation, Design, entry_of

__all__ = ["Array", "Curve", "Quantiles", "fed_variance", "silhouette"]

Array = NDArray[np.float64]
# By level, a value for each layer.
Quantiles = dict[float, tuple[float, ...]]


@dataclass(frozen=True)
class Curve:
    """A line to draw."""

    x: Array
    y: Array


def fed_variance(made: Design) -> float:
    """The variance of what the drawn φ is fed: q*, or 1 where it is drawn in units of the layer's own size."""
    return 1.0 if entry_of(made.activation).relative else made.q_star


def silhouette(phi: Activation, made: Design) -> Curve:
    """φ over what it is fed, and a little beyond its clip; of a relative one ψ, in units of the layer's own size."""
    unit = entry_of(made.activation).unit(made.q_star)
    reach = max(3.5 * unit, made.threshold + 1.4 * (made.clip or 1.5 * unit))
    x = np.sort(np.concatenate([np.linspace(-reach, reach, 81), phi.kinks]))
    return Curve(x, phi(x))
