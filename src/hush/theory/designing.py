"""The one verb: from an activation and a sparsity to τ, m, σ_w, σ_b and an honest answer to "will it train?"."""

import math

from hush.theory._checks import check_size, check_variance
from hush.theory.activations.registry import activation as activation_called
from hush.theory.activations.registry import entry_of
from hush.theory.block.chain import Chain
from hush.theory.chain_run import run_chains
from hush.theory.clip_slope import clip_from_slope
from hush.theory.design_result import Design, GainLog10, input_variance
from hush.theory.edge import edge_of_chaos
from hush.theory.fixed_points import FixedPoint, Stability, variance_fixed_points
from hush.theory.input_norms import IMAGE_NORMS, InputNorms
from hush.theory.safe_clip import largest_safe_clip
from hush.theory.sparsity_threshold import threshold_from_sparsity
from hush.theory.training_rule import judge_gains
from hush.theory.verdict import Odds, verdict_on

__all__ = ["SAFE_ODDS", "design"]

SAFE_ODDS = 0.01


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
    positions: int = 1,
) -> Design:
    """τ, m, σ_w, σ_b on the Edge of Chaos for a target sparsity, and a verdict.

    With width and depth the clip is the largest at which at most `odds` of the initialisations explode; with v_prime
    or clip, that is used and, given width and depth, judged.

    Arguments:
        activation: "crelu", "cst", "shifted_relu", "soft_threshold", or one that was registered.
        sparsity: the share of exact zeros, P(φ = 0) at q*.
        v_prime: the slope V′(q*) to choose the clip by.
        norms: the spread of |x|²/N over the inputs (default: standardised images).
        positions: 1 for an MLP; for a CNN the size of its feature maps, height × width, and width is its channels.

    Raises:
        ValueError: if a value is out of range or arguments contradict each other.
    """
    threshold = threshold_from_sparsity(activation, sparsity, q_star)
    check_variance("q_star", q_star)
    if (width is None) != (depth is None):
        raise ValueError(f"width and depth go together, got width = {width} and depth = {depth}.")
    if width is not None and depth is not None:
        check_size(width, depth, positions)
    if not _has_clip_to_choose(activation, v_prime, clip):
        m = None
    elif clip is not None:
        m = _checked_clip(activation, clip, q_star)
    elif v_prime is not None:
        m = clip_from_slope(activation, threshold, v_prime, q_star)
    elif width is None or depth is None:
        raise ValueError(f"{activation} needs a clip: give width and depth to have it chosen, or v_prime, or clip.")
    else:
        size = (width, depth, odds)
        m = largest_safe_clip(activation, sparsity, *size, q_star=q_star, norms=norms, positions=positions)
    phi = activation_called(activation, threshold, m)
    sigma_w2, sigma_b2 = edge_of_chaos(phi, q_star)
    block = Chain(phi, math.sqrt(sigma_w2), math.sqrt(sigma_b2), positions)
    slope, curvature, chi1 = block.variance_slope(q_star), block.variance_curvature(q_star), block.gain(q_star)
    if not all(math.isfinite(value) for value in (sigma_w2, sigma_b2, slope, curvature, chi1)):
        raise ValueError(
            f"{activation} at sparsity {sparsity} with clip {m} has no finite σ_w, σ_b, V′ and V″ at q* = {q_star:g}."
        )
    points = variance_fixed_points(block)
    fixed = (FixedPoint(q_star, slope, curvature, Stability.NEUTRAL),) if points.continuum else points.points
    chance = gain = None
    if width is not None and depth is not None:
        start = input_variance(q_star, threshold, m)
        outcome = judge_gains(run_chains(block, width, depth, start, norms)[1])
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
    )


def _has_clip_to_choose(activation: str, v_prime: float | None, clip: float | None) -> bool:
    if v_prime is not None and clip is not None:
        raise ValueError(f"v_prime = {v_prime} and clip = {clip} contradict each other; give one of them.")
    if entry_of(activation).clipped:
        return True
    if v_prime is not None or clip is not None:
        given = f"clip = {clip}" if v_prime is None else f"v_prime = {v_prime}"
        raise ValueError(f"{activation} has no clip to choose, and V′(q*) = 1 on its Edge of Chaos; got {given}.")
    return False


def _checked_clip(activation: str, clip: float, q_star: float) -> float:
    twin = entry_of(activation).twin
    without = f"without a clip {activation} is {twin}" if twin else "take a smaller one"
    if math.isinf(clip):
        raise ValueError(f"clip must be finite, got {clip}; {without}.")
    # No input ever comes so far, and its square would leave the range of numbers.
    if clip > 1e6 * math.sqrt(q_star):
        raise ValueError(f"clip must be at most a million √q*, got {clip}, which nothing ever reaches; {without}.")
    return float(clip)
