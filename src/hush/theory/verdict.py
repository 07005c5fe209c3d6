"""The verdict on a design, in words: the shape of V first, then what it means at this width and depth."""

from dataclasses import dataclass

from hush.theory.activations.registry import entry_of
from hush.theory.fixed_points import FixedPoint, Stability
from hush.theory.training_rule import TRAINABLE_ODDS

__all__ = ["Odds", "in_words", "verdict_on"]

# At this share of lost initialisations and above, the verdict mentions them.
_SOME = 0.05


@dataclass(frozen=True)
class Odds:
    """The share of initialisations, each seen from one input, whose gradient explodes or vanishes; and in blocks with a
    residual stream the share that can no longer tell two typical inputs apart, or whose sparsity leaves the
    design's."""

    explode: float
    vanish: float
    indistinguishable: float = 0.0
    sparsity_lost: float = 0.0


def verdict_on(
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
    """One or two sentences."""
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
    share = f"{shape}; at width {width}, depth {depth}, {in_words(odds.explode, 'explode')}"
    if odds.vanish > 0.01:
        share += f" and {in_words(odds.vanish, 'vanish')}"
    if odds.explode > TRAINABLE_ODDS:
        return f"{share}: it will not train."
    if odds.vanish > TRAINABLE_ODDS:
        return f"{share}: the first layers will hardly learn; take a wider or shallower network."
    if odds.explode > _SOME:
        return f"{share}: it should train, with some initialisations lost."
    # What the paper saw of a low V′ it saw of clips; a relative threshold has a low V′ with any clip.
    clipped = entry_of(activation).clipped and not entry_of(activation).relative
    if clipped and sparsity >= 0.85 and slope <= 0.55:
        return (
            f"{share}: it should train, but with so low a clip the paper saw slow and unstable training late on, "
            f"which no property of the initialisation shows."
        )
    return f"{share}: it should train."


def in_words(odds: float, verb: str) -> str:
    """0.712, "explode" → "7 initialisations in 10 explode"."""
    one = f"{verb}es" if verb.endswith("sh") else f"{verb}s"
    if odds < 0.0005:
        return f"fewer than 1 initialisation in 1000 {one}"
    base = 10 if odds >= 0.095 else 100 if odds >= 0.0095 else 1000
    count = round(odds * base)
    if count >= base:
        return f"{'all' if odds == 1.0 else 'nearly all'} initialisations {verb}"
    return f"1 initialisation in {base} {one}" if count == 1 else f"{count} initialisations in {base} {verb}"
