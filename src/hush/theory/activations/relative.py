"""A threshold in units of the layer's own size: φ(h) = s ψ(h/s), s the root mean square of h over the layer's units.

In a wide layer s² is q itself, so every Gaussian integral of φ is that of ψ at q = 1 times a power of q:

    E[φ²](q) = q E[ψ²]                V(q) = σ_w² E[ψ²] q + σ_b²: a straight line
    E[φ′²]   = E[ψ′²]                 the same at every q
    c(ρ)     = √(q_a q_b) c_ψ(ρ)      the correlation map of ψ at q = 1

So on the Edge of Chaos σ_w² = 1/E[ψ′²] the slope V′ = E[ψ²]/E[ψ′²] is the same everywhere and V″ = 0: below 1 there is
one fixed point, and every q goes to it. For a threshold τ > 0, clipped or not, it is below 1: ψ² ≤ ψ(z − τ) where z > 0
(ψ(z + τ) below, for the odd ones), so E[ψ²] ≤ E[zψ] − τE|ψ| < E[zψ] = E[ψ′] = E[ψ′²], by Stein's identity and because
slopes are 0 or 1. The sparsity P(ψ = 0) does not depend on q.

The derivative of s itself adds to the Jacobian a matrix of rank one, (ψ − uψ′) uᵀ/N with u = h/s: to the squared length
of a gradient that knows nothing of h it adds O(1/N). So in wide layers none of this depends on whether it is taken
along (`through_scale`), and at finite width a little does: see `block.relative_layer`.
"""

import math
from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array, Value, as_array, in_form_of
from hush.theory.activations.protocol import Activation

__all__ = ["Relative", "slope_in_wide_layer", "value_in_wide_layer"]


@dataclass(frozen=True)
class Relative:
    """φ(h) = s ψ(h/s), with s the layer's own root mean square; as a function of one number it is ψ, at s = 1.

    Arguments:
        psi: ψ, what φ is in a layer whose root mean square is 1.
        through_scale: whether the gradient goes through s as well, or takes it for a constant.
    """

    psi: Activation
    through_scale: bool = True

    @property
    def name(self) -> str:
        return f"relative_{self.psi.name.removeprefix('shifted_')}"

    def __call__(self, x: Value) -> Value:
        return self.psi(x)

    def derivative(self, x: Value) -> Value:
        return self.psi.derivative(x)

    def on_units(self, h: Array) -> Array:
        """φ of whole layers, their units along the last axis."""
        u, scale = _over_own_size(h)
        return np.asarray(scale * self.psi(u))

    def backward_on_units(self, h: Array, gradient: Array) -> Array:
        """The gradient in h from that in φ(h): ψ′g, and through s also u (ψ − uψ′)·g/N."""
        u, _ = _over_own_size(h)
        slope = self.psi.derivative(u)
        through = slope * gradient
        if self.through_scale:
            through = through + u * np.mean((self.psi(u) - u * slope) * gradient, axis=-1, keepdims=True)
        return np.asarray(through)

    def moment(self, power: int, q: Value) -> Value:
        return _times_power(q, 0.5 * power, self.psi.moment(power, 1.0))

    def mean(self, q: Value) -> Value:
        return _times_power(q, 0.5, self.psi.mean(1.0))

    def second_moment(self, q: Value) -> Value:
        return _times_power(q, 1.0, self.psi.second_moment(1.0))

    def second_moment_slope(self, q: Value) -> Value:
        return _times_power(q, 0.0, self.psi.second_moment(1.0))

    def second_moment_curvature(self, q: Value) -> Value:
        return _times_power(q, 0.0, 0.0)

    def mean_slope(self, q: Value) -> Value:
        return _times_power(q, 0.0, self.psi.mean_slope(1.0))

    def slope_moment(self, k: int, q: Value) -> Value:
        return _times_power(q, 0.0, self.psi.slope_moment(k, 1.0))

    def square_slope_moment(self, q: Value) -> Value:
        return _times_power(q, 1.0, self.psi.square_slope_moment(1.0))

    def input_slope_moment(self, q: Value) -> Value:
        return _times_power(q, 1.0, self.psi.input_slope_moment(1.0))

    def sparsity(self, q: Value) -> Value:
        return _times_power(q, 0.0, self.psi.sparsity(1.0))

    def saturation(self, q: Value) -> Value:
        return _times_power(q, 0.0, self.psi.saturation(1.0))

    @property
    def silent_intervals(self) -> tuple[tuple[float, float], ...]:
        """Of ψ: in units of s."""
        return self.psi.silent_intervals

    @property
    def plateaus(self) -> tuple[float, ...]:
        """Of ψ: in units of s."""
        return self.psi.plateaus

    def cross_moment(self, rho: Value, q_a: float | Value, q_b: float | Value) -> Value:
        return self._scaled(rho, q_a, q_b, self.psi.cross_moment(rho, 1.0, 1.0))

    def cross_moment_slope(self, rho: Value, q_a: float | Value, q_b: float | Value) -> Value:
        return self._scaled(rho, q_a, q_b, self.psi.cross_moment_slope(rho, 1.0, 1.0))

    def cross_moment_and_slope(self, rho: Value, q_a: float | Value, q_b: float | Value) -> tuple[Value, Value]:
        value, slope = self.psi.cross_moment_and_slope(rho, 1.0, 1.0)
        return self._scaled(rho, q_a, q_b, value), self._scaled(rho, q_a, q_b, slope)

    def _scaled(self, rho: Value, q_a: float | Value, q_b: float | Value, value: Value) -> Value:
        found = np.sqrt(np.asarray(q_a, dtype=np.float64) * q_b) * value
        plain = all(np.ndim(x) == 0 for x in (rho, q_a, q_b))
        return float(found) if plain else found  # type: ignore[return-value]

    def bound(self) -> float:
        """∞: a clip at m·s grows with the layer."""
        return math.inf

    @property
    def kinks(self) -> tuple[float, ...]:
        """Of ψ: in units of s."""
        return self.psi.kinks

    @property
    def scales(self) -> tuple[float, ...]:
        """None: it looks the same at every q."""
        return ()

    @property
    def is_homogeneous(self) -> bool:
        """φ(ah) = aφ(h) for a > 0, since s grows along."""
        return True

    @property
    def is_odd(self) -> bool:
        return self.psi.is_odd


def value_in_wide_layer(phi: Activation, h: Array, q: Array) -> Array:
    """φ(h) unit by unit in an infinitely wide layer of variance q, whose size is √q."""
    if not isinstance(phi, Relative):
        return phi(h)
    root = np.sqrt(np.maximum(q, np.finfo(np.float64).tiny))
    return np.asarray(root * phi.psi(h / root))


def slope_in_wide_layer(phi: Activation, h: Array, q: Array) -> Array:
    """φ′(h) there; that of the size is of order 1/N."""
    if not isinstance(phi, Relative):
        return phi.derivative(h)
    return np.asarray(phi.psi.derivative(h / np.sqrt(np.maximum(q, np.finfo(np.float64).tiny))))


def _over_own_size(h: Array) -> tuple[Array, Array]:
    """(h/s, s); where h is 0 everywhere, so is h/s."""
    scale = np.sqrt(np.mean(np.square(h), axis=-1, keepdims=True))
    return h / np.where(scale > 0.0, scale, 1.0), scale


def _times_power(q: Value, power: float, value: float) -> Value:
    return in_form_of(q, value * as_array(q) ** power)
