"""Designs for blocks on a residual stream: τ, m, σ's and β for a sparsity, and four verdicts with their odds.

A matrix that feeds φ and reads something of second moment n² has σ_in² = q*/n², so that q = q* (n² is 1 behind a norm);
the matrix that reads φ and writes to the stream has σ_out² = 1/E[φ′²], the Edge of Chaos, so that a branch passes a
squared gradient on with gain β²; of a gated block, whose other factor gets variance 1, σ_out² is what makes that gain
β² at p = 1. Biases are 0: with a stream nothing needs them to hold q.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hush.theory._arrays import Array
from hush.theory._checks import check_positive, check_size
from hush.theory._root import find_root
from hush.theory.activations.protocol import Activation
from hush.theory.activations.registry import entry_of
from hush.theory.block.branch_scale import resolve_branch_scale
from hush.theory.block.feedforward import FeedForward
from hush.theory.block.norm import Norm, check_norm
from hush.theory.block.residual import Residual
from hush.theory.chain_run import run_chains
from hush.theory.design_arguments import (
    RELATIVE_CLIP,
    checked_clip,
    given_sparsity,
    has_clip_to_choose,
    named_phi,
)
from hush.theory.design_result import Design, GainLog10
from hush.theory.input_norms import InputNorms
from hush.theory.pair_bands import run_pairs
from hush.theory.sparsity_threshold import threshold_from_sparsity
from hush.theory.stream_verdict import verdict_on_stream
from hush.theory.training_rule import (
    DISTINGUISHABLE_LOG10,
    EXPLODING_BLOCK_GAIN_LOG10,
    SPARSITY_TOLERANCE,
    TYPICAL_CORRELATION,
    judge_gains,
)
from hush.theory.unit_run import run_units
from hush.theory.verdict import Odds

__all__ = ["BLOCKS", "StreamRequest", "design_stream", "sparsity_lost"]

BLOCKS = ("residual", "feedforward", "gated")
# The clip in units of √q*; see `design`.
_CLIP = 1.0
_EXPANSION = 4.0
# Of an input of typical norm; how the norms spread is added to the sparsity afterwards.
_TYPICAL = InputNorms((0.5,), (1.0,))
_SPARSITY_SAMPLES = 200
_PAIRS = 64
_FROM, _TO = 1e-140, 1e140


@dataclass(frozen=True)
class StreamRequest:
    """The arguments of `design`, for a block on a residual stream."""

    activation: str
    sparsity: float | None
    width: int | None
    depth: int | None
    clip: float | None
    q_star: float
    odds: float
    norms: InputNorms
    positions: int
    block: str
    norm: Norm | None
    post_norm: bool
    branch_scale: float | str
    hidden: int | None
    stream_start: float | None
    through_scale: bool | None = None

    def __post_init__(self) -> None:
        if self.block not in BLOCKS:
            raise ValueError(f"block must be one of chain, {', '.join(BLOCKS)}, got {self.block!r}.")
        check_norm(self.norm)
        if self.post_norm and self.norm is None:
            raise ValueError("post_norm needs a norm: 'rms' or 'layer'.")
        if self.block == "residual" and self.post_norm and self.q_star != 1.0:
            raise ValueError(
                f"a residual block with its norm behind the sum reads the stream, which the norm leaves at q = 1; got "
                f"q_star = {self.q_star}."
            )
        if self.block == "residual" and self.hidden is not None:
            raise ValueError(f"a residual block has one matrix and no hidden units; got hidden = {self.hidden}.")
        if self.hidden is not None and (self.width is None or int(self.hidden) != self.hidden or self.hidden < 1):
            raise ValueError(
                f"hidden must be a whole number of at least 1 and go with a width, got hidden = {self.hidden} and "
                f"width = {self.width}."
            )
        if self.width is not None and self.depth is None:
            raise ValueError(f"width and depth go together, got width = {self.width} and depth = None.")
        if self.depth is not None:
            check_size(self.width or 2, self.depth, self.positions)
        if self.stream_start is not None:
            check_positive("stream_start", self.stream_start)
        if not 0.0 < self.odds < 1.0:
            raise ValueError(f"odds must lie strictly between 0 and 1, got {self.odds}.")

    @property
    def q_moves(self) -> bool:
        """Whether q changes with the stream: there is no norm."""
        return self.norm is None


def design_stream(asked: StreamRequest) -> Design:
    """See `design`."""
    sparsity = given_sparsity(asked.activation, asked.sparsity, asked.q_star)
    threshold = 0.0
    if entry_of(asked.activation).designable:
        threshold = threshold_from_sparsity(asked.activation, sparsity, asked.q_star)
    else:
        sparsity = given_sparsity(asked.activation, None, asked.q_star)
    if not has_clip_to_choose(asked.activation, None, asked.clip):
        return _judged(asked, sparsity, threshold, None)
    if asked.clip is not None:
        return _judged(asked, sparsity, threshold, checked_clip(asked.activation, asked.clip, asked.q_star))
    usual = RELATIVE_CLIP if entry_of(asked.activation).relative else _CLIP * math.sqrt(asked.q_star)
    return _judged(asked, sparsity, threshold, usual)


def _judged(asked: StreamRequest, sparsity: float, threshold: float, clip: float | None) -> Design:
    phi = named_phi(asked.activation, threshold, clip, asked.through_scale)
    block, start = _place(asked, _block(asked, phi))
    in2 = block.sigma_1**2 if isinstance(block, FeedForward) else None
    up2 = None if not isinstance(block, FeedForward) or block.sigma_up is None else block.sigma_up**2
    out2 = block.sigma_2**2 if isinstance(block, FeedForward) else block.sigma_w**2
    made = Design(
        activation=asked.activation,
        sparsity=sparsity,
        threshold=threshold,
        clip=clip,
        q_star=float(asked.q_star),
        sigma_w2=out2,
        sigma_b2=0.0,
        chi1=block.gain(start),
        v_prime=block.variance_slope(start),
        v_second=block.variance_curvature(start),
        fixed_points=(),
        width=asked.width,
        depth=asked.depth,
        gain_log10=None,
        odds=None,
        verdict="",
        positions=asked.positions,
        block_name=asked.block,
        norm=asked.norm,
        post_norm=asked.post_norm,
        branch_scale=block.branch_scale,
        branch_rule=asked.branch_scale if isinstance(asked.branch_scale, str) else None,
        hidden=None if asked.width is None else block.preactivation_units(asked.width),
        expansion=block.expansion if isinstance(block, FeedForward) else None,
        sigma_in2=in2,
        sigma_up2=up2,
        sigma_out2=out2,
        stream_start=start,
        through_scale=asked.through_scale,
    )
    if asked.width is not None and asked.depth is not None:
        made = _with_odds(made, block, asked.width, asked.depth, asked.norms)
    return replace(made, verdict=verdict_on_stream(made))


def _block(asked: StreamRequest, phi: Activation) -> Residual | FeedForward:
    q, beta = asked.q_star, resolve_branch_scale(asked.branch_scale, asked.depth)
    slope, square = phi.slope_moment(1, q), phi.second_moment(q)
    if not slope > 0.0:
        raise ValueError(f"{asked.activation} passes no gradient at q* = {q:g}, so no σ_out makes up for it.")
    if asked.block == "residual":
        weight = 1.0 if asked.norm is None or asked.post_norm else math.sqrt(q)
        sigma_w = slope**-0.5 / weight
        return Residual(phi, sigma_w, 0.0, asked.norm, beta, asked.post_norm, asked.positions, weight)
    expansion = _EXPANSION if asked.hidden is None or asked.width is None else asked.hidden / asked.width
    gated = asked.block == "gated"
    out2 = 1.0 / (q * slope + (square if gated else 0.0))
    up = 1.0 if gated else None
    return FeedForward(
        phi, math.sqrt(q), 0.0, math.sqrt(out2), 0.0, asked.norm, beta, expansion, up, asked.post_norm, asked.positions
    )


def _place(asked: StreamRequest, block: Residual | FeedForward) -> tuple[Residual | FeedForward, float]:
    """(the block, the stream's start): without a norm such that the middle block has q = q*."""
    start = 1.0 if asked.stream_start is None else float(asked.stream_start)
    if not asked.q_moves:
        return block, start
    middle = 0 if asked.depth is None else asked.depth // 2
    if isinstance(block, Residual):
        if asked.stream_start is not None:
            return block, start
        return block, _crossing(lambda p: _after(block, p, middle) / asked.q_star, float(asked.q_star), 0.5)

    def placed(reads: float) -> FeedForward:
        root = 1.0 / math.sqrt(reads)
        return replace(block, sigma_1=math.sqrt(asked.q_star) * root, sigma_up=None if block.sigma_up is None else root)

    return placed(_crossing(lambda p: _after(placed(p), start, middle) / p, start, 2.0)), start


def _crossing(ratio: Callable[[float], float], start: float, step: float) -> float:
    """Where the ratio, at least 1 at `start`, has come down to 1 on the way from there by factors of `step`."""
    far = start
    while ratio(far) > 1.0:
        far *= step
        if not _FROM < far < _TO:
            raise ValueError(
                "the stream grows beyond all numbers within the first half of the blocks; take a smaller β."
            )
    if far == start:
        return start
    ends = sorted((math.log(far), math.log(far / step)))
    return math.exp(find_root(lambda u: math.log(ratio(math.exp(u))), *ends, xtol=1e-13))


def _after(block: Residual | FeedForward, start: float, blocks: int) -> float:
    """The variance of an infinitely wide stream behind so many blocks."""
    p = start
    for _ in range(blocks):
        p = min(max(block.variance(p), _FROM), _TO)
    return p


def _with_odds(made: Design, block: Residual | FeedForward, width: int, depth: int, norms: InputNorms) -> Design:
    start = made.input_variance
    # One layer more than blocks: the last is the stream behind the last block.
    stream, gains = run_chains(block, width, depth + 1, start, norms)
    outcome = judge_gains(gains, EXPLODING_BLOCK_GAIN_LOG10)
    levels = outcome.gain_log10
    cosines = run_pairs(block, width, depth + 1, start, [TYPICAL_CORRELATION], at_most=_PAIRS)[-1]
    separation = 1.0 - cosines
    odds = Odds(
        outcome.explode,
        outcome.vanish,
        float(np.mean(separation < 10.0**DISTINGUISHABLE_LOG10)),
        sparsity_lost(made, block, width, depth, norms) if made.norm is None and made.sparsity > 0.0 else 0.0,
    )
    return replace(
        made,
        gain_log10=GainLog10(levels[0.1], levels[0.5], levels[0.9]),
        odds=odds,
        stream_end=float(np.median(stream[-1])),
        separation=float(np.median(separation)),
    )


def sparsity_lost(
    made: Design,
    block: Residual | FeedForward,
    width: int,
    depth: int,
    norms: InputNorms,
    samples: int = _SPARSITY_SAMPLES,
) -> float:
    """The share of initialisations in which some layer's sparsity, averaged over the inputs, leaves the design's.

    Of the noise that one input sees, inputs of correlation ρ share the ρ²-th part of the variance: |x|² is a square.
    """
    start = made.input_variance
    if isinstance(block, Residual):
        stream = run_units(block, width, depth, np.full(samples, start), 0, backward=False)[0]
    else:
        stream = run_chains(block, width, depth, start, _TYPICAL, samples)[0]
    middle = np.median(stream, axis=1, keepdims=True)
    stream = middle * (stream / middle) ** TYPICAL_CORRELATION
    # What the spread of the inputs' norms adds to the mean, at infinite width.
    scores = np.linspace(-2.5, 2.5, 41)
    weights = np.exp(-0.5 * scores**2) / np.exp(-0.5 * scores**2).sum()
    p: Array = np.append(start * norms.at(scores), start)
    added = np.empty((depth, 1))
    for layer in range(depth):
        shares = block.sparsity(p)
        added[layer] = weights @ shares[:-1] - shares[-1]
        p = np.clip(block.variance(p), _FROM, _TO)
    distance = abs(block.sparsity(stream) + added - made.sparsity)
    return float(np.mean(distance.max(0) > SPARSITY_TOLERANCE))
