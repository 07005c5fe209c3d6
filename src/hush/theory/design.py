"""The one verb: from an activation and a sparsity to τ, m, σ_w, σ_b and an honest answer to "will it train?"."""

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hush.theory.activation import PiecewiseLinear
from hush.theory.edge_of_chaos import CLIPPED, activation, clip_from_slope, edge_of_chaos, threshold_from_sparsity
from hush.theory.finite_width import (
    IMAGE_NORMS,
    TRAINABLE_ODDS,
    InputNorms,
    check_size,
    largest_safe_clip,
    outcome,
    run_chains,
)
from hush.theory.fixed_points import FixedPoint, Stability, variance_fixed_points
from hush.theory.maps import chi_1, variance_map_curvature, variance_map_slope

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Design", "GainLog10", "Odds", "design"]

# The paper feeds unclipped networks inputs below q*, to give them the best chance (appendix C).
_UNCLIPPED_INPUT = 0.75
SAFE_ODDS = 0.01


@dataclass(frozen=True)
class GainLog10:
    """Quantiles of log10 of the end-to-end gain |δ_1|²/|δ_L|² over initialisations and inputs."""

    q10: float
    median: float
    q90: float


@dataclass(frozen=True)
class Odds:
    """The share of initialisations, each seen from one input, whose gradient explodes or vanishes."""

    explode: float
    vanish: float


@dataclass(frozen=True)
class Design:
    """A sparse activation on the Edge of Chaos, and what to expect of it.

    Attributes:
        clip: m, or None for the unclipped activations.
        sigma_w2, sigma_b2: weights are N(0, σ_w²/fan-in), biases N(0, σ_b²).
        v_prime, v_second: V′(q*) and V″(q*).
        fixed_points: every fixed point of V; where all q are fixed (ReLU), q* itself, neutral.
        width, depth, gain_log10, odds: None unless a width and depth were given.
    """

    activation: str
    sparsity: float
    threshold: float
    clip: float | None
    q_star: float
    sigma_w2: float
    sigma_b2: float
    chi1: float
    v_prime: float
    v_second: float
    fixed_points: tuple[FixedPoint, ...]
    width: int | None
    depth: int | None
    gain_log10: GainLog10 | None
    odds: Odds | None
    verdict: str

    @property
    def sigma_w(self) -> float:
        return math.sqrt(self.sigma_w2)

    @property
    def sigma_b(self) -> float:
        return math.sqrt(self.sigma_b2)

    @property
    def input_variance(self) -> float:
        """What the variance of the inputs should be: q*, or 0.75 q* where q* is stable from below only."""
        return self.q_star * (_UNCLIPPED_INPUT if _leans_on_one_side(self.clip, self.threshold) else 1.0)

    @property
    def trains(self) -> bool | None:
        """Whether the calibrated rule lets it train; None without a width and depth."""
        return None if self.odds is None else max(self.odds.explode, self.odds.vanish) <= TRAINABLE_ODDS

    def phi(self) -> PiecewiseLinear:
        """The activation as the theory's value object."""
        return activation(self.activation, self.threshold, self.clip)

    def module(self) -> "nn.Module":
        """The activation as a torch module."""
        from hush.nn import from_design

        return from_design(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        points = [
            {"q": p.value, "slope": p.slope, "curvature": p.curvature, "stability": p.stability.value}
            for p in self.fixed_points
        ]
        return {**asdict(self), "fixed_points": points}

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Design":
        """The design `to_json` wrote.

        Raises:
            ValueError: if the text is not such a design.
        """
        try:
            fields = json.loads(text)
            fields["fixed_points"] = tuple(
                FixedPoint(p["q"], p["slope"], p["curvature"], Stability(p["stability"]))
                for p in fields["fixed_points"]
            )
            fields["gain_log10"] = fields["gain_log10"] and GainLog10(**fields["gain_log10"])
            fields["odds"] = fields["odds"] and Odds(**fields["odds"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not a hush design: {error}.") from error

    def rows(self) -> list[tuple[str, str]]:
        """(name, value) pairs for a table."""
        rows = [
            ("activation", self.activation),
            ("sparsity s", f"{self.sparsity:g}"),
            ("threshold τ", f"{self.threshold:.6g}"),
            ("clip m", "none" if self.clip is None else f"{self.clip:.6g}"),
            ("q*", f"{self.q_star:g}"),
            ("σ_w²", f"{self.sigma_w2:.6g}"),
            ("σ_b²", f"{self.sigma_b2:.6g}"),
            ("χ₁", f"{self.chi1:.6g}"),
            ("V′(q*)", f"{self.v_prime:.4g}"),
            ("V″(q*)", f"{round(self.v_second, 4) + 0.0:.4g}"),
            ("fixed points q", "; ".join(str(point) for point in self.fixed_points) or "none"),
        ]
        if self.odds is not None and self.gain_log10 is not None:
            gain = self.gain_log10
            rows += [
                ("width × depth", f"{self.width} × {self.depth}"),
                ("log10 gain, 10/50/90 %", f"{gain.q10:.2f} / {gain.median:.2f} / {gain.q90:.2f}"),
                ("odds to explode", f"{self.odds.explode:.3g}"),
                ("odds to vanish", f"{self.odds.vanish:.3g}"),
            ]
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        left = max(len(name) for name, _ in rows)
        lines = [f"{name:<{left}}  {value}" for name, value in rows]
        return "\n".join([*lines, "", self.verdict])


def design(
    activation: str,
    sparsity: float,
    *,
    width: int | None = None,
    depth: int | None = None,
    v_prime: float | None = None,
    clip: float | None = None,
    q_star: float = 1.0,
    odds: float = SAFE_ODDS,
    norms: InputNorms = IMAGE_NORMS,
) -> Design:
    """τ, m, σ_w, σ_b on the Edge of Chaos for a target sparsity, and a verdict.

    With width and depth the clip is the largest at which at most `odds` of the initialisations explode; with v_prime
    or clip, that is used and, given width and depth, judged.

    Arguments:
        activation: "crelu", "cst", "shifted_relu" or "soft_threshold".
        sparsity: the share of exact zeros, P(φ = 0) at q*.
        v_prime: the slope V′(q*) to choose the clip by.
        norms: the spread of |x|²/N over the inputs (default: standardised images).

    Raises:
        ValueError: if a value is out of range or arguments contradict each other.
    """
    threshold = threshold_from_sparsity(activation, sparsity, q_star)
    m = _choose_clip(activation, sparsity, threshold, width, depth, v_prime, clip, q_star, odds, norms)
    phi = _phi(activation, threshold, m)
    sigma_w2, sigma_b2 = edge_of_chaos(phi, q_star)
    sigma_w, sigma_b = math.sqrt(sigma_w2), math.sqrt(sigma_b2)
    points = variance_fixed_points(phi, sigma_w, sigma_b)
    slope, curvature = variance_map_slope(phi, q_star, sigma_w), variance_map_curvature(phi, q_star, sigma_w)
    neutral = (FixedPoint(q_star, slope, curvature, Stability.NEUTRAL),)
    fixed = neutral if points.continuum else points.points
    chance = gain = None
    if width is not None and depth is not None:
        start = q_star * (_UNCLIPPED_INPUT if _leans_on_one_side(m, threshold) else 1.0)
        check_size(width, depth)
        levels, explode, vanish = outcome(run_chains(phi, sigma_w2, sigma_b2, width, depth, start, norms)[1])
        gain, chance = GainLog10(levels[0.1], levels[0.5], levels[0.9]), Odds(explode, vanish)
    return Design(
        activation=activation,
        sparsity=float(sparsity),
        threshold=threshold,
        clip=m,
        q_star=float(q_star),
        sigma_w2=sigma_w2,
        sigma_b2=sigma_b2,
        chi1=chi_1(phi, q_star, sigma_w),
        v_prime=slope,
        v_second=curvature,
        fixed_points=fixed,
        width=width,
        depth=depth,
        gain_log10=gain,
        odds=chance,
        verdict=_verdict(activation, sparsity, q_star, slope, curvature, fixed, width, depth, chance),
    )


# `design` has a parameter of the same name, as its callers expect.
_phi = activation


def _leans_on_one_side(clip: float | None, threshold: float) -> bool:
    return clip is None and threshold > 0.0


def _choose_clip(
    activation: str,
    sparsity: float,
    threshold: float,
    width: int | None,
    depth: int | None,
    v_prime: float | None,
    clip: float | None,
    q_star: float,
    odds: float,
    norms: InputNorms,
) -> float | None:
    if (width is None) != (depth is None):
        raise ValueError(f"width and depth go together, got width = {width} and depth = {depth}.")
    if v_prime is not None and clip is not None:
        raise ValueError(f"v_prime = {v_prime} and clip = {clip} contradict each other; give one of them.")
    if activation not in CLIPPED:
        if v_prime is not None or clip is not None:
            given = f"clip = {clip}" if v_prime is None else f"v_prime = {v_prime}"
            raise ValueError(f"{activation} has no clip to choose, and V′(q*) = 1 on its Edge of Chaos; got {given}.")
        return None
    if clip is not None:
        if math.isinf(clip):
            twin = "soft_threshold" if activation == "cst" else "shifted_relu"
            raise ValueError(f"clip must be finite, got {clip}; without a clip {activation} is {twin}.")
        return float(clip)
    if v_prime is not None:
        return clip_from_slope(activation, threshold, v_prime, q_star)
    if width is None or depth is None:
        raise ValueError(f"{activation} needs a clip: give width and depth to have it chosen, or v_prime, or clip.")
    return largest_safe_clip(activation, sparsity, width, depth, odds, q_star=q_star, norms=norms)


def _verdict(
    activation: str,
    sparsity: float,
    q_star: float,
    slope: float,
    curvature: float,
    fixed: tuple[FixedPoint, ...],
    width: int | None,
    depth: int | None,
    odds: Odds | None,
) -> str:
    """The verdict in words: the shape of V first, then what it means at this width and depth."""
    here = f"V′(q*) = {slope:.2f} and V″ = {round(curvature, 2) + 0.0:.2f}"
    others = [p for p in fixed if abs(p.value - q_star) > 1e-6 * q_star and p.stability is Stability.STABLE]
    own = next((p.stability for p in fixed if abs(p.value - q_star) <= 1e-6 * q_star), Stability.UNSTABLE)
    if own is Stability.NEUTRAL:
        shape = f"{here}: every q is a fixed point, nothing pulls q back"
    elif own is Stability.STABLE_FROM_BELOW:
        shape = f"{here}: q* is stable from below only, above it q runs away"
    elif others:
        shape = f"{here}: a second stable point at q = {others[-1].value:.2f}"
    else:
        shape = f"{here}: q* = {q_star:g} is stable and the only fixed point"
    if odds is None:
        return f"{shape}. Give width and depth for the odds."
    share = f"{shape}; at width {width}, depth {depth}, {_in_words(odds.explode, 'explode')}"
    if odds.vanish > 0.01:
        share += f" and {_in_words(odds.vanish, 'vanish')}"
    if odds.explode > TRAINABLE_ODDS:
        return f"{share}: it will not train."
    if odds.vanish > TRAINABLE_ODDS:
        return f"{share}: the first layers will hardly learn; take a wider or shallower network."
    if odds.explode > 0.05:
        return f"{share}: it should train, with some initialisations lost."
    if activation in CLIPPED and sparsity >= 0.85 and slope <= 0.55:
        return (
            f"{share}: it should train, but with so low a clip the paper saw slow and unstable training late on, "
            f"which no property of the initialisation shows."
        )
    return f"{share}: it should train."


def _in_words(odds: float, verb: str) -> str:
    """0.712, "explode" → "7 initialisations in 10 explode"."""
    one = f"{verb}es" if verb.endswith("sh") else f"{verb}s"
    if odds < 0.0005:
        return f"fewer than 1 initialisation in 1000 {one}"
    base = 10 if odds >= 0.095 else 100 if odds >= 0.0095 else 1000
    count = round(odds * base)
    if count >= base:
        return f"{'all' if odds == 1.0 else 'nearly all'} initialisations {verb}"
    return f"1 initialisation in {base} {one}" if count == 1 else f"{count} initialisations in {base} {verb}"
