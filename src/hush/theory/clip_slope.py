"""The clip m and the slope V′(q*) that it gives on the Edge of Chaos; one follows from the other."""

import math
from collections.abc import Callable
from functools import lru_cache

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
        raise ValueError(f"only {', '.join(clipped_names())} have a clip, got {name!r}.")
    if not 0.0 < v_prime < 1.0:
        raise ValueError(f"V′(q*) of a clipped activation lies strictly between 0 and 1, got {v_prime}.")
    check_positive("q_star", q_star)
    unit = entry_of(name).unit(q_star)
    return unit * _unit_clip(entry_of(name), threshold / unit, v_prime)


# By the entry and not by its name, which another may bear one day.
@lru_cache(maxsize=64)
def _unit_clip(entry: ActivationEntry, tau: float, v_prime: float) -> float:
    """The clip at q* = 1."""

    def gap(log_m: float) -> float:
        return float(_slopes_on_edge(entry, tau, np.array([math.exp(log_m)]))[0]) - v_prime

    low, high = math.log(_SMALLEST * max(1.0, tau)), math.log(_LARGEST)
    if gap(low) >= 0.0 or gap(high) <= 0.0:
        below = _last_below(gap, low, high)
        if below is None or gap(below + _STEP) < 0.0:
            unit = "of the layer's own size" if entry.relative else "√q*"
            most = f"; without a clip it is {gap(high) + v_prime:.3g}" if gap(high) <= 0.0 else ""
            raise ValueError(
                f"no clip of {entry.name} at a threshold of {tau:g} {unit} gives V′(q*) = {v_prime}{most}."
            )
        low, high = below, below + _STEP
    return math.exp(find_root(gap, low, high, xtol=1e-14, rtol=1e-14))


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
    entry = entry_of(name)
    unit = entry.unit(q_star)
    tau, scaled = threshold / unit, clips.ravel() / unit
    slopes, curvatures = _slopes_on_edge(entry, tau, scaled), _curvatures_on_edge(entry, tau, scaled)
    return (
        in_form_of(clip, slopes.reshape(clips.shape)),
        in_form_of(clip, curvatures.reshape(clips.shape) / q_star),
    )


def _slopes_on_edge(entry: ActivationEntry, threshold: float, clips: Array) -> Array:
    """V′ at q* = 1 for each m: with σ_w² = 1/E[φ′²] it is the derivative of E[φ²] over E[φ′²]."""
    if entry.slope_of_clip is not None:
        return entry.slope_of_clip(threshold, clips)
    made = [entry.construct(threshold, float(m)) for m in clips]
    gains = np.array([phi.slope_moment(1, 1.0) for phi in made])
    if not gains.all():
        raise ValueError(f"E[φ′²] = 0 at a threshold of {threshold:g} √q*: no σ_w brings χ₁ to 1.")
    slopes: Array = np.array([phi.second_moment_slope(1.0) for phi in made]) / gains
    return slopes


def _curvatures_on_edge(entry: ActivationEntry, threshold: float, clips: Array) -> Array:
    """V″ at q* = 1 for each m."""
    if entry.curvature_of_clip is not None:
        return entry.curvature_of_clip(threshold, clips)
    made = [entry.construct(threshold, float(m)) for m in clips]
    return np.array([phi.second_moment_curvature(1.0) / phi.slope_moment(1, 1.0) for phi in made])
