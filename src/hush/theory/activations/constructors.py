"""The activations of the paper by name, and a few to compare them with."""

import math

import numpy as np
from scipy.special import expit, ndtr

from hush.theory._arrays import Array
from hush.theory._gaussian import density
from hush.theory.activations.piecewise import PiecewiseLinear
from hush.theory.activations.smooth import Smooth

__all__ = [
    "crelu",
    "cst",
    "fatrelu",
    "gelu",
    "hardtanh",
    "identity",
    "leaky_relu",
    "relu",
    "shifted_relu",
    "silu",
    "soft_threshold",
    "tanh",
]


def identity() -> PiecewiseLinear:
    """φ(x) = x."""
    return PiecewiseLinear((), (1.0,), (0.0,), "identity")


def relu() -> PiecewiseLinear:
    """φ(x) = max(0, x)."""
    return PiecewiseLinear((0.0,), (0.0, 1.0), (0.0, 0.0), "relu")


def leaky_relu(slope: float) -> PiecewiseLinear:
    """φ(x) = x for x > 0, slope·x otherwise."""
    return PiecewiseLinear((0.0,), (slope, 1.0), (0.0, 0.0), "leaky_relu")


def hardtanh(bound: float) -> PiecewiseLinear:
    """φ(x) = min(max(x, −bound), bound)."""
    bound = _check("bound", bound, positive=True)
    return PiecewiseLinear((-bound, bound), (0.0, 1.0, 0.0), (-bound, 0.0, bound), "hardtanh")


def shifted_relu(threshold: float) -> PiecewiseLinear:
    """ReLU_τ(x) = x − τ for x > τ, else 0 (paper, eq. 7)."""
    threshold = _check("threshold", threshold, positive=False)
    _check_finite("threshold", threshold)
    return PiecewiseLinear((threshold,), (0.0, 1.0), (0.0, -threshold), "shifted_relu")


def soft_threshold(threshold: float) -> PiecewiseLinear:
    """ST_τ(x) = x − sign(x)τ for |x| > τ, else 0 (paper, eq. 8)."""
    threshold = _check("threshold", threshold, positive=False)
    _check_finite("threshold", threshold)
    if threshold == 0.0:
        return PiecewiseLinear((), (1.0,), (0.0,), "soft_threshold")
    return PiecewiseLinear((-threshold, threshold), (1.0, 0.0, 1.0), (threshold, 0.0, -threshold), "soft_threshold")


def crelu(threshold: float, clip: float) -> PiecewiseLinear:
    """CReLU_{τ,m}(x) = min(max(x − τ, 0), m) (paper, eq. 9). clip = ∞ is the shifted ReLU."""
    clip = _check("clip", clip, positive=True)
    if math.isinf(clip):
        return shifted_relu(threshold)
    threshold = _check("threshold", threshold, positive=False)
    _check_finite("threshold", threshold)
    top = _top(threshold, clip)
    return PiecewiseLinear((threshold, top), (0.0, 1.0, 0.0), (0.0, -threshold, clip), "crelu")


def cst(threshold: float, clip: float) -> PiecewiseLinear:
    """CST_{τ,m}(x) = sign(x)·min(max(|x| − τ, 0), m) (paper, eq. 10). clip = ∞ is the soft threshold."""
    clip = _check("clip", clip, positive=True)
    if math.isinf(clip):
        return soft_threshold(threshold)
    threshold = _check("threshold", threshold, positive=False)
    _check_finite("threshold", threshold)
    top = _top(threshold, clip)
    if threshold == 0.0:
        return PiecewiseLinear((-top, top), (0.0, 1.0, 0.0), (-clip, 0.0, clip), "cst")
    return PiecewiseLinear(
        (-top, -threshold, threshold, top),
        (0.0, 1.0, 0.0, 1.0, 0.0),
        (-clip, threshold, 0.0, -threshold, clip),
        "cst",
    )


def fatrelu(threshold: float) -> PiecewiseLinear:
    """FATReLU_τ(x) = x for x > τ, else 0: it jumps at τ (Kurtz et al. 2020)."""
    threshold = _check("threshold", threshold, positive=False)
    _check_finite("threshold", threshold)
    return PiecewiseLinear((threshold,), (0.0, 1.0), (0.0, 0.0), "fatrelu")


def gelu() -> Smooth:
    """φ(x) = xΦ(x)."""
    return Smooth(_gelu, _gelu_slope, "gelu")


def silu() -> Smooth:
    """φ(x) = x/(1 + e^{−x})."""
    return Smooth(_silu, _silu_slope, "silu")


def tanh() -> Smooth:
    """φ(x) = tanh x."""
    return Smooth(np.tanh, _tanh_slope, "tanh", limit=1.0, odd=True)


def _check_finite(name: str, value: float) -> None:
    if math.isinf(value):
        raise ValueError(f"{name} must be finite, got {value}.")


def _top(threshold: float, clip: float) -> float:
    """τ + m, where φ reaches the clip."""
    if threshold + clip == threshold:
        raise ValueError(f"clip {clip} is lost in rounding beside threshold {threshold}; take a larger clip.")
    return threshold + clip


def _check(name: str, value: float, *, positive: bool) -> float:
    value = float(value)
    if math.isnan(value) or value < 0.0 or (positive and value == 0.0):
        raise ValueError(f"{name} must be {'positive' if positive else 'at least 0'}, got {value}.")
    return value


def _gelu(x: Array) -> Array:
    return x * np.asarray(ndtr(x))


def _gelu_slope(x: Array) -> Array:
    return np.asarray(ndtr(x)) + x * density(x)


def _silu(x: Array) -> Array:
    return x * np.asarray(expit(x))


def _silu_slope(x: Array) -> Array:
    share = np.asarray(expit(x))
    return share * (1.0 + x * (1.0 - share))


def _tanh_slope(x: Array) -> Array:
    return 1.0 / np.cosh(np.clip(x, -350.0, 350.0)) ** 2
