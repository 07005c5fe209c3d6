"""A design: the numbers of a sparse activation on the Edge of Chaos, how they print and how they survive JSON."""

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hush.theory.activations.protocol import Activation
from hush.theory.activations.registry import activation, entry_of
from hush.theory.block.chain import Chain
from hush.theory.block.feedforward import FeedForward
from hush.theory.block.norm import Norm
from hush.theory.block.residual import Residual
from hush.theory.design_rows import parameter_rows, rows_of_stream
from hush.theory.fixed_points import FixedPoint, Stability
from hush.theory.input_correlations import IMAGE_CORRELATIONS, InputCorrelations
from hush.theory.input_norms import IMAGE_NORMS, InputNorms
from hush.theory.separation_curve import Separations, separations
from hush.theory.training_rule import INDISTINGUISHABLE_ODDS, TRAINABLE_ODDS
from hush.theory.verdict import Odds

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Design", "GainLog10", "input_variance"]

# The paper feeds unclipped networks inputs below q*, to give them the best chance (appendix C).
_UNCLIPPED_INPUT = 0.75


def input_variance(activation: str, q_star: float, threshold: float, clip: float | None) -> float:
    """What the variance of the inputs should be: q*, or 0.75 q* where q* is stable from below only."""
    below_only = clip is None and threshold > 0.0 and not entry_of(activation).relative
    return q_star * (_UNCLIPPED_INPUT if below_only else 1.0)


# The fields that a plain chain has nothing to say in.
_OF_STREAMS = (
    "block_name",
    "norm",
    "post_norm",
    "branch_scale",
    "branch_rule",
    "hidden",
    "expansion",
    "sigma_in2",
    "sigma_up2",
    "sigma_out2",
    "stream_start",
    "stream_end",
)


@dataclass(frozen=True)
class GainLog10:
    """Quantiles of log10 of the end-to-end gain |δ_1|²/|δ_L|² over initialisations and inputs."""

    q10: float
    median: float
    q90: float


@dataclass(frozen=True)
class Design:
    """A sparse activation on the Edge of Chaos, and what to expect of it.

    Attributes:
        clip: m, or None for the unclipped activations.
        sigma_w2, sigma_b2: weights are N(0, σ_w²/fan-in), biases N(0, σ_b²).
        v_prime, v_second: V′(q*) and V″(q*).
        fixed_points: every fixed point of V; where all q are fixed (ReLU), q* itself, neutral.
        width, depth, gain_log10, odds: None unless a width and depth were given.
        positions: 1 for an MLP, the size of the feature map for a CNN; the gains and odds are for that many.
        block_name: "chain", or of a block on a residual stream "residual", "feedforward", "gated"; for those depth is
            the number of blocks, σ_w² is σ_out², σ_b² is 0, χ₁, V′ and V″ are those of a block at the stream's start,
            and there is no fixed point.
        norm, post_norm: None, "rms" or "layer", in front of the branch or behind the sum.
        branch_scale, branch_rule: β, and the rule it came from.
        hidden: hidden units of a block with two matrices; None without a width.
        sigma_in2, sigma_up2, sigma_out2: of the matrix that feeds φ, of the one beside a gate, and of the one that
            reads φ and writes to the stream, each over its fan-in; None where there is none. Biases are 0.
        stream_start, stream_end: |x|²/N as it enters the first block, and its median behind the last.
        separation: the median of 1 − ρ of two inputs behind the last layer or block.
        lost_at_depth: of a chain, the layer from which on inputs are indistinguishable; None where they are not.
        through_scale: of a relative activation, whose threshold and clip are in units of the layer's own root mean
            square, whether the gradient goes through that; None for others.
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
    positions: int = 1
    block_name: str = "chain"
    norm: Norm | None = None
    post_norm: bool = False
    branch_scale: float | None = None
    branch_rule: str | None = None
    hidden: int | None = None
    expansion: float | None = None
    sigma_in2: float | None = None
    sigma_up2: float | None = None
    sigma_out2: float | None = None
    stream_start: float | None = None
    stream_end: float | None = None
    separation: float | None = None
    through_scale: bool | None = None
    lost_at_depth: int | None = None

    @property
    def sigma_w(self) -> float:
        return math.sqrt(self.sigma_w2)

    @property
    def sigma_b(self) -> float:
        return math.sqrt(self.sigma_b2)

    @property
    def input_variance(self) -> float:
        """What the variance of the inputs should be: q*, or 0.75 q* where q* is stable from below only; of a residual
        stream, that of its start."""
        if self.stream_start is not None:
            return self.stream_start
        return input_variance(self.activation, self.q_star, self.threshold, self.clip)

    @property
    def trains(self) -> bool | None:
        """Whether the calibrated rule lets it train; None without a width and depth."""
        if self.odds is None:
            return None
        apart = INDISTINGUISHABLE_ODDS if self.block_name == "chain" else TRAINABLE_ODDS
        astray = max(self.odds.explode, self.odds.vanish)
        return astray <= TRAINABLE_ODDS and self.odds.indistinguishable <= apart

    @property
    def keeps_sparsity(self) -> bool | None:
        """Whether every layer starts at the design's sparsity; None without a width and depth."""
        return None if self.odds is None else self.odds.sparsity_lost <= TRAINABLE_ODDS

    def phi(self) -> Activation:
        """The activation as the theory's value object."""
        entry = entry_of(self.activation)
        if not entry.designable:
            return entry.construct()
        return activation(self.activation, self.threshold, self.clip, through_scale=self.through_scale)

    def block(self) -> Chain | Residual | FeedForward:
        """The block that it designs, as the theory's object."""
        if self.block_name == "chain":
            return self.chain()
        # Every block with a stream has these.
        assert self.branch_scale is not None
        assert self.sigma_out2 is not None
        out, beta = math.sqrt(self.sigma_out2), self.branch_scale
        if self.block_name == "residual":
            weight = 1.0 if self.norm is None or self.post_norm else math.sqrt(self.q_star)
            return Residual(self.phi(), out, 0.0, self.norm, beta, self.post_norm, self.positions, weight)
        assert self.sigma_in2 is not None
        assert self.expansion is not None
        up = None if self.sigma_up2 is None else math.sqrt(self.sigma_up2)
        return FeedForward(
            self.phi(),
            math.sqrt(self.sigma_in2),
            0.0,
            out,
            0.0,
            self.norm,
            beta,
            self.expansion,
            up,
            self.post_norm,
            self.positions,
        )

    def chain(self) -> Chain:
        """The plain chain that it designs.

        Raises:
            ValueError: if it designs another block.
        """
        if self.block_name != "chain":
            raise ValueError(f"this design is for {self.block_name} blocks, not for a plain chain of layers.")
        return Chain(self.phi(), self.sigma_w, self.sigma_b, self.positions)

    def module(self) -> "nn.Module":
        """The activation as a torch module."""
        from hush.nn import from_design

        return from_design(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; positions only where there are several, and what concerns residual streams only
        where there is one."""
        points = [
            {"q": p.value, "slope": p.slope, "curvature": p.curvature, "stability": p.stability.value}
            for p in self.fixed_points
        ]
        values = {**asdict(self), "fixed_points": points}
        if self.positions == 1:
            del values["positions"]
        if self.through_scale is None:
            del values["through_scale"]
        if self.block_name == "chain":
            for field in _OF_STREAMS:
                del values[field]
            if values["odds"] is not None:
                del values["odds"]["sparsity_lost"]
        else:
            del values["lost_at_depth"]
        return values

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
        if self.block_name != "chain":
            return rows_of_stream(self)
        rows = [
            ("activation", self.activation),
            ("sparsity s", f"{self.sparsity:g}"),
            *parameter_rows(self),
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
                *([("positions", f"{self.positions}")] if self.positions > 1 else []),
                ("log10 gain, 10/50/90 %", f"{gain.q10:.2f} / {gain.median:.2f} / {gain.q90:.2f}"),
                ("odds to explode", f"{self.odds.explode:.3g}"),
                ("odds to vanish", f"{self.odds.vanish:.3g}"),
                *self._apart(),
            ]
        return rows

    def _apart(self) -> list[tuple[str, str]]:
        """How far apart inputs stay; not in designs that were written before hush looked."""
        if self.separation is None or self.odds is None:
            return []
        lost = [] if self.lost_at_depth is None else [("indistinguishable from layer", f"{self.lost_at_depth}")]
        share = ("odds of indistinguishable inputs", f"{self.odds.indistinguishable:.3g}")
        return [("1 − ρ at the end", f"{self.separation:.3g}"), share, *lost]

    def distinguishability(
        self, norms: InputNorms = IMAGE_NORMS, correlations: InputCorrelations = IMAGE_CORRELATIONS
    ) -> Separations:
        """How far apart two inputs stay, layer by layer, with its finite-width quantiles; of a chain with a width.

        Raises:
            ValueError: without a width and depth, or for blocks on a residual stream.
        """
        if self.width is None or self.depth is None:
            raise ValueError("how far apart inputs stay depends on width and depth; this design has none.")
        return separations(
            self.chain(),
            self.width,
            self.depth,
            q_start=self.input_variance,
            q_star=self.q_star,
            norms=norms,
            correlations=correlations,
        )

    def __str__(self) -> str:
        rows = self.rows()
        left = max(len(name) for name, _ in rows)
        lines = [f"{name:<{left}}  {value}" for name, value in rows]
        return "\n".join([*lines, "", self.verdict])
