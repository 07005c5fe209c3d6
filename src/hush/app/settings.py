"""What the explorer's controls stand at, and how far each of them goes."""

import math
from dataclasses import dataclass, replace
from enum import Enum

from hush.theory import BRANCH_SCALES, activation_names, entry_of
from hush.theory.block.norm import Norm
from hush.theory.stream_designing import BLOCKS as STREAM_BLOCKS

__all__ = ["BLOCKS", "NORMS", "Clip", "Range", "Settings", "Sigmas", "branch_rules", "q_is_given", "span"]

BLOCKS = ("chain", *STREAM_BLOCKS)
# By name: the kind of norm, and whether it stands behind the sum instead of in front of the branch.
NORMS: dict[str, tuple[Norm | None, bool]] = {
    "none": (None, False),
    "rms": ("rms", False),
    "layer": ("layer", False),
    "post-rms": ("rms", True),
    "post-layer": ("layer", True),
}
NUMBER = "number"


def branch_rules() -> tuple[str, ...]:
    """How β is chosen: by one of the theory's rules, or as a number."""
    return (*BRANCH_SCALES, NUMBER)


class Clip(Enum):
    """How the clip m is chosen: as `design` does, in a chain between two ways to fail; by itself; or by V′(q*)."""

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
    "branch_scale": Range(0.0, 2.0, 0.01, 1.0),
    "hidden_ratio": Range(0.25, 8.0, 0.25, 4.0),
}
# Beyond these a redraw takes longer than 0.3 s: networks of one-matrix residual blocks are run unit by unit.
_STREAM_ENDS = {"depth": 100}
_ONE_MATRIX_ENDS = {"depth": 100, "width": 400}
WHOLE = ("width", "depth")
NUMBERS = tuple(_RANGES)


def q_is_given(block: str, norm: str) -> bool:
    """Whether φ reads the stream itself and a norm behind the sum has left that at 1."""
    return block == "residual" and NORMS[norm][1]


def span(name: str, activation: str = "crelu", q_star: float = 1.0, block: str = "chain") -> Range:
    """The range of a control; one-sided activations are at least half silent, and a clip is measured in √q*, or where
    it is relative in units of the layer's own size."""
    span = _RANGES[name]
    ends = {"chain": {}, "residual": _ONE_MATRIX_ENDS}.get(block, _STREAM_ENDS)
    if name in ends:
        return replace(span, high=ends[name])
    if name == "sparsity":
        return Range(entry_of(activation).lowest_sparsity, span.high, span.step, span.default)
    if name in ("clip", "sigma_b"):
        unit = entry_of(activation).unit(q_star) if name == "clip" else math.sqrt(q_star)
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
        block: what the network repeats, one of BLOCKS. The σ's and `start` count in a chain only, what follows in the
            others only; of those `depth` is the number of blocks.
        norm: one of NORMS.
        branch_rule, branch_scale: β; the number is used where the rule says so.
        hidden_ratio: hidden units over width, of blocks with two matrices.
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
    block: str = "chain"
    norm: str = "rms"
    branch_rule: str = "1/sqrt(depth)"
    branch_scale: float = 1.0
    hidden_ratio: float = 4.0

    def __post_init__(self) -> None:
        for name, choices in (("block", BLOCKS), ("norm", tuple(NORMS)), ("branch_rule", branch_rules())):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")
        if self.activation not in activation_names():
            raise ValueError(f"activation must be one of {', '.join(activation_names())}, got {self.activation!r}.")
        for name in NUMBERS:
            allowed, value = span(name, self.activation, self.q_star, self.block), getattr(self, name)
            if not allowed.holds(value):
                raise ValueError(f"{name} must lie {allowed}, got {value}.")
        if self.has_stream and self.clip_by is Clip.SLOPE:
            raise ValueError(f"a clip by V′(q*) is for chains; a {self.block} block has no fixed point q*.")
        if q_is_given(self.block, self.norm) and self.q_star != 1.0:
            raise ValueError(f"with its norm behind the sum a residual block has q = 1, got q_star = {self.q_star}.")

    @property
    def has_stream(self) -> bool:
        """Whether the block stands on a residual stream."""
        return self.block != "chain"

    @property
    def has_hidden(self) -> bool:
        """Whether the block has two matrices, with hidden units in between."""
        return self.block in ("feedforward", "gated")

    @property
    def is_clipped(self) -> bool:
        return entry_of(self.activation).clipped

    @property
    def on_edge(self) -> bool:
        """Whether σ_w and σ_b are those of the Edge of Chaos."""
        return (
            self.has_stream
            or self.sigmas is Sigmas.EDGE
            or (self.sigmas is Sigmas.FACTOR and self.sigma_w_factor == 1.0)
        )
