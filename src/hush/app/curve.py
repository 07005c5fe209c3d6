"""What is drawn: lines and bands, and the line of φ."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hush.theory import Activation, Design

__all__ = ["Array", "Curve", "Quantiles", "silhouette"]

Array = NDArray[np.float64]
# By level, a value for each layer.
Quantiles = dict[float, tuple[float, ...]]


@dataclass(frozen=True)
class Curve:
    """A line to draw."""

    x: Array
    y: Array


def silhouette(phi: Activation, made: Design) -> Curve:
    """φ over what it is fed, and a little beyond its clip."""
    unit = math.sqrt(made.q_star)
    reach = max(3.5 * unit, made.threshold + 1.4 * (made.clip or 1.5 * unit))
    x = np.sort(np.concatenate([np.linspace(-reach, reach, 81), phi.kinks]))
    return Curve(x, phi(x))
