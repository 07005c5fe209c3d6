"""The one verb: from an activation and a sparsity to τ, m, σ_w, σ_b and an honest answer to "will it train?"."""

import math

from hush.theory._checks import check_size, check_variance
from hush.theory.activations.registry import entry_of
from hush.theory.block.chain import Chain
from hush.theory.block.norm import Norm
from hush.theory.chain_run import run_chains
from hush.theory.clip_slope import clip_from_slope
from hush.theory.design_arguments import (
    RELATIVE_CLIP,
    checked_clip,
    given_sparsity,
    has_clip_to_choose,
    named_phi,
    resolve_through_scale,
)
from hush.theory.design_result import Design, GainLog10, input_variance
from hush.theory.edge import edge_of_chaos
from hush.theory.fixed_points import FixedPoint, Stability, variance_fixed_points
from hush.theory.input_norms import IMAGE_NORMS, InputNorms
from hush.theory.safe_clip import largest_safe_clip
from hush.theory.sparsity_threshold import threshold_from_sparsity
from hush.theory.stream_designing import StreamRequest, design_stream
from hush.theory.training_rule import judge_gains
from hush.theory.verdict import Odds, verdict_on

__all__ = ["SAFE_ODDS", "design"]

SAFE_ODDS = 0.01


def design(
    activation: str,
    sparsity: float | None = None,
    *,
    width: int | None = None,
    depth: int | None = None,
    v_prime: float | None = None,
    clip: float | None = None,
    q_star: float = 1.0,
    odds: float = SAFE_ODDS,
    norms: InputNorms = IMAGE_NORMS,
    positions: int = 1,
    block: str = "chain",
    norm: Norm | None = None,
    post_norm: bool = False,
    branch_scale: float | str = "1/sqrt(depth)",
    hidden: int | None = None,
    stream_start: float | None = None,
    through_scale: bool | None = None,
) -> Design:
    """τ, m, σ_w, σ_b on the Edge of Chaos for a target sparsity, and a verdict.

    With width and depth the clip is the largest at which at most `odds` of the initialisations explode; with v_prime
    or clip, that is used and, given width and depth, judged.

    Of the relative activations, whose threshold and clip are in units of the layer's own root mean square, V is a
    straight line with a slope below 1 at any clip, so nothing needs a clip to be safe: the clip is 2 unless given.

    In a block on a residual stream nothing runs away that a clip could hold: σ_out makes up for what it takes from the
    gradient, so its gain is β² with any clip, and a smaller clip, which adds less to the stream, makes it no safer. The
    clip is therefore the largest of use unless given: √q*, with which such networks were seen to train as well as with
    ReLU, and beyond which hardly a unit is clipped. Without a norm q grows with the stream, and the design puts q* in
    the middle block.

    Arguments:
        activation: "crelu", "cst", "shifted_relu", "soft_threshold", or with thresholds relative to the layer's own
            size "relative_crelu", "relative_cst", "relative_relu", "relative_soft_threshold", or one registered;
            without a sparsity one that has no parameters, such as "relu", "gelu", "silu" or "tanh".
        sparsity: the share of exact zeros, P(φ = 0) at q*; None for activations without a threshold.
        v_prime: the slope V′(q*) to choose the clip by.
        norms: the spread of |x|²/N over the inputs (default: standardised images).
        positions: 1 for an MLP; for a CNN the size of its feature maps, height × width, and width is its channels.
        block: what the network repeats: "chain", h ← Wφ(h) + b; "residual", x ← x + βWφ(n(x)); "feedforward",
            x ← x + βW₂φ(W₁n(x)); "gated", with φ(W₁n(x)) ∘ W_u n(x). Of the last three depth is the number of blocks,
            and the arguments below concern them alone.
        norm: n: None, "rms" or "layer"; in front of the branch, or with post_norm behind the sum.
        branch_scale: β: a number, "1/sqrt(depth)", "1/depth" or "learned", which starts at 1/√depth.
        hidden: hidden units of a block of two matrices; 4 × width unless given.
        stream_start: |x|²/N as it enters the first block; 1 unless given, and in a residual block without a norm, where
            q is |x|²/N, what puts q* in the middle.
        through_scale: of a relative activation, whether the gradient goes through the root mean square (as it does
            unless False is given) or takes it for a constant.

    Raises:
        ValueError: if a value is out of range or arguments contradict each other.
    """
    check_variance("q_star", q_star)
    if block != "chain":
        asked = StreamRequest(
            activation=activation,
            sparsity=sparsity,
            width=width,
            depth=depth,
            clip=clip,
            q_star=q_star,
            odds=odds,
            norms=norms,
            positions=positions,
            block=block,
            norm=norm,
            post_norm=post_norm,
            branch_scale=branch_scale,
            hidden=hidden,
            stream_start=stream_start,
            through_scale=resolve_through_scale(activation, through_scale),
        )
        if v_prime is not None:
            raise ValueError(
                f"v_prime = {v_prime} chooses the clip of a chain by the slope at its fixed point, and a "
                f"residual stream has none; give a clip, or leave it to hush."
            )
        return design_stream(asked)
    for name, value, default in (
        ("norm", norm, None),
        ("post_norm", post_norm, False),
        ("branch_scale", branch_scale, "1/sqrt(depth)"),
        ("hidden", hidden, None),
        ("stream_start", stream_start, None),
    ):
        if value != default:
            raise ValueError(f"{name} = {value!r} is for blocks on a residual stream; give block too, or leave it out.")
    if entry_of(activation).designable or entry_of(activation).parameters:
        threshold = threshold_from_sparsity(activation, given_sparsity(activation, sparsity), q_star)
    else:
        threshold = 0.0
    sparsity = given_sparsity(activation, sparsity, q_star)
    through_scale = resolve_through_scale(activation, through_scale)
    if (width is None) != (depth is None):
        raise ValueError(f"width and depth go together, got width = {width} and depth = {depth}.")
    if width is not None and depth is not None:
        check_size(width, depth, positions)
    if not has_clip_to_choose(activation, v_prime, clip):
        m = None
    elif clip is not None:
        m = checked_clip(activation, clip, q_star)
    elif v_prime is not None:
        m = clip_from_slope(activation, threshold, v_prime, q_star)
    elif entry_of(activation).relative:
        m = RELATIVE_CLIP
    elif width is None or depth is None:
        raise ValueError(f"{activation} needs a clip: give width and depth to have it chosen, or v_prime, or clip.")
    else:
        size = (width, depth, odds)
        m = largest_safe_clip(activation, sparsity, *size, q_star=q_star, norms=norms, positions=positions)
    phi = named_phi(activation, threshold, m, through_scale)
    sigma_w2, sigma_b2 = edge_of_chaos(phi, q_star)
    chain = Chain(phi, math.sqrt(sigma_w2), math.sqrt(sigma_b2), positions)
    slope, curvature, chi1 = chain.variance_slope(q_star), chain.variance_curvature(q_star), chain.gain(q_star)
    if not all(math.isfinite(value) for value in (sigma_w2, sigma_b2, slope, curvature, chi1)):
        raise ValueError(
            f"{activation} at sparsity {sparsity} with clip {m} has no finite σ_w, σ_b, V′ and V″ at q* = {q_star:g}."
        )
    points = variance_fixed_points(chain)
    fixed = (FixedPoint(q_star, slope, curvature, Stability.NEUTRAL),) if points.continuum else points.points
    chance = gain = None
    if width is not None and depth is not None:
        start = input_variance(activation, q_star, threshold, m)
        outcome = judge_gains(run_chains(chain, width, depth, start, norms)[1])
        levels = outcome.gain_log10
        gain, chance = GainLog10(levels[0.1], levels[0.5], levels[0.9]), Odds(outcome.explode, outcome.vanish)
    return Design(
        activation=activation,
        sparsity=float(sparsity),
        threshold=threshold,
        clip=m,
        q_star=float(q_star),
        sigma_w2=sigma_w2,
        sigma_b2=sigma_b2,
        chi1=chi1,
        v_prime=slope,
        v_second=curvature,
        fixed_points=fixed,
        width=width,
        depth=depth,
        gain_log10=gain,
        odds=chance,
        verdict=verdict_on(activation, sparsity, q_star, slope, curvature, fixed, width, depth, chance),
        positions=positions,
        through_scale=through_scale,
    )
