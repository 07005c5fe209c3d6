"""The clip m and the slope V′(q*) that it gives on the Edge of Chaos; one follows from the other."""

import math
from collections.abc import Callable

import numpy as np

from hush.theory._arrays import Array, Value, as_array, in_form_of
from hush.theory._checks import check_positive
from hush.theory._root import find_root
from hush.theory.activations.registry import ActivationEntry, activation, clipped_names, entry_of

__all__ = ["clip_from_slope", "slope_and_curvature_of_clip"]

# In units of √q*, or of τ where that is larger: V′ falls to 0 like m, and beyond 40 a clip is out of reach.
_SMALLEST, _LARGEST = 1e-9, 40.0
# Between the clips tried where V′ does not rise from 0, in log m.
_STEP = 0.1


def clip_from_slope(name: str, threshold: float, v_prime: float, q_star: float = 1.0) -> float:
    """m such that V′(q*) = v_prime on the Edge of Chaos; V′ rises with m from 0 to 1 (paper, Figure 3)."""
    if name not in clipped_names():
        raise ValueError(f"only {' and '.join(clipped_names())} have a clip, got {name!r}.")
    if not 0.0 < v_prime < 1.0:
        raise ValueError(f"V′(q*) of a clipped activation lies strictly between 0 and 1, got {v_prime}.")
    check_positive("q_star", q_star)
    entry, unit = entry_of(name), math.sqrt(q_star)
    tau = threshold / unit

    def gap(log_m: float) -> float:
        return float(_on_edge(entry, tau, np.array([math.exp(log_m)]))[0][0]) - v_prime

    low, high = math.log(_SMALLEST * max(1.0, tau)), math.log(_LARGEST)
    if not gap(low) < 0.0 < gap(high):
        below = _last_below(gap, low, high)
        if below is None:
            raise ValueError(f"no clip of {name} at a threshold of {tau:g} √q* gives V′(q*) = {v_prime}.")
        low, high = below, below + _STEP
    return unit * math.exp(find_root(gap, low, high, xtol=1e-14, rtol=1e-14))


def _last_below(gap: Callable[[float], float], low: float, high: float) -> float | None:
    """Where V′ first falls below what is asked for, coming from the largest clip in steps.

    V′ of CReLU and CST rises from 0. That of an activation which is not flat above its clip falls first: then the
    larger of the two clips is meant, at which more gradient passes.
    """
    while gap(high) > 0.0:
        high -= _STEP
        if high < low:
            return None
    return high


def slope_and_curvature_of_clip(name: str, threshold: float, clip: Value, q_star: float = 1.0) -> tuple[Value, Value]:
    """(V′(q*), V″(q*)) on the Edge of Chaos at each clip m: the curves of the paper's Figure 3."""
    clips = as_array(clip)
    for m in clips.ravel():
        activation(name, threshold, float(m))  # says what is wrong
    check_positive("q_star", q_star)
    unit = math.sqrt(q_star)
    slopes, curvatures = _on_edge(entry_of(name), threshold / unit, clips.ravel() / unit)
    return (
        in_form_of(clip, slopes.reshape(clips.shape)),
        in_form_of(clip, curvatures.reshape(clips.shape) / q_star),
    )


def _on_edge(entry: ActivationEntry, threshold: float, clips: Array) -> tuple[Array, Array]:
    """(V′, V″) at q* = 1 for each m: with σ_w² = 1/E[φ′²] they are the derivatives of E[φ²] over E[φ′²]."""
    if entry.edge_of_clip is not None:
        return entry.edge_of_clip(threshold, clips)
    made = [entry.construct(threshold, float(m)) for m in clips]
    gains = np.array([phi.slope_moment(1, 1.0) for phi in made])
    if not gains.all():
        raise ValueError(f"E[φ′²] = 0 at a threshold of {threshold:g} √q*: no σ_w brings χ₁ to 1.")
    slopes = np.array([phi.second_moment_slope(1.0) for phi in made])
    return slopes / gains, np.array([phi.second_moment_curvature(1.0) for phi in made]) / gains
