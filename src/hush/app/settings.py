"""What the explorer's controls stand at, and how far each of them goes."""

import math
from dataclasses import dataclass
from enum import Enum

from hush.theory import activation_names, entry_of

__all__ = ["Clip", "Range", "Settings", "Sigmas", "span"]


class Clip(Enum):
    """How the clip m is chosen."""

    SAFE = "safe"
    HEIGHT = "m"
    SLOPE = "v_prime"


class Sigmas(Enum):
    """How σ_w and σ_b are chosen: on the Edge of Chaos, σ_w a multiple of that, or both freely."""

    EDGE = "edge"
    FACTOR = "factor"
    FREE = "free"


@dataclass(frozen=True)
class Range:
    """The values a control takes, ends included."""

    low: float
    high: float
    step: float
    default: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def nearest(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def __str__(self) -> str:
        return f"between {self.low:g} and {self.high:g}"


_RANGES = {
    "sparsity": Range(0.0, 0.98, 0.005, 0.85),
    "clip": Range(0.05, 5.0, 0.01, 1.2),
    "v_prime": Range(0.05, 0.99, 0.01, 0.7),
    "q_star": Range(0.1, 10.0, 0.1, 1.0),
    "width": Range(10, 2000, 10, 300),
    "depth": Range(2, 120, 1, 100),  # deeper ones take longer than 0.3 s to redraw; hush design takes any depth
    "sigma_w_factor": Range(0.5, 1.5, 0.01, 1.0),
    "sigma_w": Range(0.0, 12.0, 0.01, 2.0),
    "sigma_b": Range(0.0, 4.0, 0.01, 0.5),
    "start": Range(0.05, 8.0, 0.05, 1.9),
}
WHOLE = ("width", "depth")
NUMBERS = tuple(_RANGES)


def span(name: str, activation: str = "crelu", q_star: float = 1.0) -> Range:
    """The range of a control; one-sided activations are at least half silent, and a clip is measured in √q*."""
    span = _RANGES[name]
    if name == "sparsity":
        return Range(entry_of(activation).lowest_sparsity, span.high, span.step, span.default)
    if name in ("clip", "sigma_b"):
        unit = math.sqrt(q_star)
        # Rounded outwards to the step of the slider.
        high = math.ceil(span.high * unit / span.step - 1e-9) * span.step
        return Range(span.low, round(high, 6), span.step, round(span.default * unit, 2))
    return span


@dataclass(frozen=True)
class Settings:
    """One state of the explorer.

    Attributes:
        clip, v_prime: each used when `clip_by` says so.
        sigma_w_factor: σ_w as a multiple of that on the Edge of Chaos, used with Sigmas.FACTOR.
        sigma_w, sigma_b: used with Sigmas.FREE.
        start: where the cobweb begins, in units of q*; 1.9 is the norm of the brightest hundredth of images.
    """

    activation: str = "crelu"
    sparsity: float = 0.85
    clip_by: Clip = Clip.SAFE
    clip: float = 1.2
    v_prime: float = 0.7
    q_star: float = 1.0
    width: int = 300
    depth: int = 100
    sigmas: Sigmas = Sigmas.EDGE
    sigma_w_factor: float = 1.0
    sigma_w: float = 2.0
    sigma_b: float = 0.5
    start: float = 1.9

    def __post_init__(self) -> None:
        if self.activation not in activation_names():
            raise ValueError(f"activation must be one of {', '.join(activation_names())}, got {self.activation!r}.")
        for name in NUMBERS:
            allowed, value = span(name, self.activation, self.q_star), getattr(self, name)
            if not allowed.holds(value):
                raise ValueError(f"{name} must lie {allowed}, got {value}.")

    @property
    def is_clipped(self) -> bool:
        return entry_of(self.activation).clipped

    @property
    def on_edge(self) -> bool:
        """Whether σ_w and σ_b are those of the Edge of Chaos."""
        return self.sigmas is Sigmas.EDGE or (self.sigmas is Sigmas.FACTOR and self.sigma_w_factor == 1.0)
