"""What a norm in front of a branch, or behind the sum, does to a stream x of N units and variance p = |x|²/N.

    "rms"    n(x) = x/√p              "layer"  n(x) = (x − x̄)/√(p − x̄²)

The weight of a norm counts as 1 and its ε as 0. What comes out has second moment 1 whatever p was, so the
pre-activation behind a norm does not depend on the stream. Backwards the Jacobian is (1/√p)(I − x xᵀ/(N p)): a squared
gradient is divided by p and loses its part along x, one of N directions; a LayerNorm also takes out the mean, another
one. The coordinates of a stream that random weights have written are i.i.d. around 0, so x̄² is p/N and the two norms
differ by terms of order 1/N alone: the covariance of two normalised inputs is their correlation, which is the cosine of
x_a and x_b ("rms") or of the centred ones ("layer").
"""

from typing import Literal

import numpy as np

from hush.theory._arrays import Array

__all__ = ["Norm", "backward_through", "check_norm", "hold", "lost_directions", "normalise"]

Norm = Literal["rms", "layer"]

_FAR = 1e15
_LOST: dict[str | None, int] = {None: 0, "rms": 1, "layer": 2}


def check_norm(norm: str | None) -> None:
    """Raise a ValueError unless it is None, "rms" or "layer"."""
    if norm not in _LOST:
        raise ValueError(f"norm must be None, 'rms' or 'layer', got {norm!r}.")


def lost_directions(norm: Norm | None) -> int:
    """How many of a gradient's N directions the norm takes out."""
    return _LOST[norm]


def normalise(norm: Norm | None, x: Array) -> tuple[Array, Array]:
    """(n(x), the root mean square it was divided by, of shape (…, 1)); over the last axis, and for None x and 1."""
    if norm is None:
        return x, np.ones((*x.shape[:-1], 1))
    centred = x - x.mean(-1, keepdims=True) if norm == "layer" else x
    # A stream of nothing but zeros stays what it is, as it does with the ε of a real norm.
    scale = np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True))
    scale = np.where(scale > 0.0, scale, 1.0)
    return centred / scale, scale


def backward_through(norm: Norm | None, normalised: Array, scale: Array, gradient: Array) -> Array:
    """The gradient in x from that in n(x), where `normalise` gave (normalised, scale)."""
    if norm is None:
        return gradient
    kept = gradient - normalised * np.mean(normalised * gradient, axis=-1, keepdims=True)
    if norm == "layer":
        kept = kept - kept.mean(-1, keepdims=True)
    return np.asarray(kept / scale)


def hold(x: Array) -> Array:
    """x, or where its root mean square has run away to 1e15, scaled back to that: what is beyond is lost anyway, and
    its powers must not overflow."""
    size = np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True))
    return np.asarray(x * np.minimum(1.0, _FAR / np.maximum(size, 1.0)))
