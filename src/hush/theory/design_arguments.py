"""What `design` makes of an activation's name, a sparsity and a clip before anything is computed."""

import math

from hush.theory.activations.protocol import Activation
from hush.theory.activations.registry import activation as activation_called
from hush.theory.activations.registry import entry_of

__all__ = [
    "RELATIVE_CLIP",
    "checked_clip",
    "given_sparsity",
    "has_clip_to_choose",
    "named_phi",
    "resolve_through_scale",
]

# The clip of a relative activation unless another is given, in units of the layer's own root mean square. V is a
# straight line with any clip, so the gradient needs none at the start; in training it keeps q from running away, and
# twice the size learnt best in chains (docs/relative.md).
RELATIVE_CLIP = 2.0
# In units of √q*, or of the layer's own size. Beyond the first no input ever comes; below the second σ_w would exceed a
# hundred million.
_LARGEST_CLIP, _SMALLEST_CLIP = 1e6, 1e-9


def given_sparsity(activation: str, sparsity: float | None, q_star: float = 1.0) -> float:
    """The sparsity asked for, or of an activation without parameters the one that it has."""
    entry = entry_of(activation)
    if not entry.designable and not entry.parameters:
        own = entry.construct().sparsity(q_star)
        if sparsity is not None and abs(sparsity - own) > 1e-9:
            raise ValueError(
                f"{activation} has no threshold to choose, its share of zeros is {own:g}; leave the sparsity out, got "
                f"{sparsity}."
            )
        return own
    if sparsity is None:
        entry_of(activation, designable=True)
        raise ValueError(f"{activation} needs a sparsity, for example 0.85.")
    return float(sparsity)


def named_phi(activation: str, threshold: float, clip: float | None, through_scale: bool | None = None) -> Activation:
    """φ by name, whether or not it has a threshold."""
    entry = entry_of(activation)
    if not entry.designable:
        return entry.construct()
    return activation_called(activation, threshold, clip, through_scale=through_scale)


def resolve_through_scale(activation: str, through_scale: bool | None) -> bool | None:
    """Of a relative activation True unless said otherwise; None of all others, for which nothing can be said.

    Raises:
        ValueError: if it is said of another.
    """
    if entry_of(activation).relative:
        return True if through_scale is None else bool(through_scale)
    if through_scale is not None:
        raise ValueError(
            f"through_scale = {through_scale} is for thresholds relative to a layer's own size, and that of "
            f"{activation} is not."
        )
    return None


def has_clip_to_choose(activation: str, v_prime: float | None, clip: float | None) -> bool:
    if v_prime is not None and clip is not None:
        raise ValueError(f"v_prime = {v_prime} and clip = {clip} contradict each other; give one of them.")
    if entry_of(activation).clipped:
        return True
    if v_prime is not None or clip is not None:
        given = f"clip = {clip}" if v_prime is None else f"v_prime = {v_prime}"
        if entry_of(activation).relative:
            raise ValueError(f"{activation} has no clip to choose; {entry_of(activation).twin} has one; got {given}.")
        raise ValueError(f"{activation} has no clip to choose, and V′(q*) = 1 on its Edge of Chaos; got {given}.")
    return False


def checked_clip(activation: str, clip: float, q_star: float) -> float:
    twin = entry_of(activation).twin
    without = f"without a clip {activation} is {twin}" if twin else "take a smaller one"
    if math.isinf(clip):
        raise ValueError(f"clip must be finite, got {clip}; {without}.")
    unit = entry_of(activation).unit(q_star)
    named = "rms(h)" if entry_of(activation).relative else "√q*"
    if clip > _LARGEST_CLIP * unit:
        raise ValueError(
            f"clip must be at most {_LARGEST_CLIP:g} {named}, got {clip}, which nothing ever reaches; {without}."
        )
    if 0.0 < clip < _SMALLEST_CLIP * unit:
        raise ValueError(f"clip must be at least {_SMALLEST_CLIP:g} {named}, got {clip}, which lets no gradient pass.")
    return float(clip)
