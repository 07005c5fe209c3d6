"""What N units make of a threshold in units of their own size: φ(h) = s ψ(h/s), with s² = |h|²/N as it is *measured*.

Of h_j i.i.d. N(0, k), the size s² = k χ²_N/N and the direction u = h/s on the sphere |u|² = N are independent, so

    (1/N) Σφ² = k A B,    A = χ²_N/N,    B = (1/N) Σψ(u_j)²        the size carries k on, the direction the shape of ψ

and everything about zeros, slopes and plateaus is a matter of u alone: the noise of s does not feed the sparsity. On
the sphere an average over units is what it is over Gaussians less its regression on |z|²: with e = E[ψ²], μ₁ = E[ψ′²],
η = E[z²ψ′²], g = d/dq E[ψ(√q z)²] at q = 1, and cov(ψ², z²) = 2g, cov(ψ′², z²) = η − μ₁,

    N Var A = 2                   N Var B = E[ψ⁴] − e² − 2g²            N Var (1/N)Σψ′²g_j² = 3μ₂ − μ₁² − (η − μ₁)²/2
    N cov(B, Σψ′²g_j²/N) = E[ψ²ψ′²] − eμ₁ − g(η − μ₁)

and the mean of f over the sphere is E[f] − f″/N, f″ the second derivative of E[f(√q z)] in q at 1.

**Backwards** Jᵀg = ψ′g + u ((ψ − uψ′)·g)/N where the gradient goes through s; to |Jᵀg|² that adds (e − η)/N in units of
|g|². The weights that send a gradient back are those that made h, so what comes back along h matters too: φ is
homogeneous, hence h·Jᵀg = φ·g by Euler's identity, of variance e where without s it is that of h ψ′ g, η. A gradient
along x = φ(h) itself passes J with gain (E[ψ²ψ′²] + e² − g²)/e instead of E[ψ²ψ′²]/e. With s taken for a constant all
three are those of an elementwise φ.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hush.theory._arrays import Array
from hush.theory.activations.protocol import Activation
from hush.theory.activations.relative import Relative

__all__ = ["RelativeLayer", "backward_on_units", "on_units", "relative_layer"]

# For derivatives in q: the error is of its square, and of 1e-16 over it.
_STEP = 1e-3


@dataclass(frozen=True)
class RelativeLayer:
    """The figures of ψ at q = 1, as the module's docstring names them.

    Attributes:
        second, fourth, sixth: E[ψ²], E[ψ⁴], E[ψ⁶].
        fourth_slope: the derivative of E[ψ(√q z)⁴] in q.
        slope, curvature: g and the second derivative of E[ψ(√q z)²] in q.
        mu_1, mu_2: E[ψ′²] and E[ψ′⁴].
        mu_1_curvature: the second derivative of E[ψ′(√q z)²] in q.
        both: E[ψ²ψ′²].
        eta: E[z²ψ′²].
        silent_known, saturated_known: cov(share, z²)²/2, by which the sphere makes the variance s(1 − s) of the shares
            of zeros and of saturated units smaller.
        through_scale: whether the gradient goes through s.
    """

    second: float
    fourth: float
    fourth_slope: float
    sixth: float
    slope: float
    curvature: float
    mu_1: float
    mu_2: float
    mu_1_curvature: float
    both: float
    eta: float
    silent_known: float
    saturated_known: float
    through_scale: bool

    @property
    def square_variance(self) -> float:
        """N Var[A B]: of the mean of φ², k = 1."""
        return self.fourth - self.second**2 + 2.0 * (self.second**2 - self.slope**2)

    @property
    def square_third(self) -> float:
        """N² times the third central moment of A B: 8e³ of the size, that of ψ² less its regression on z², and what
        the product of the two adds."""
        e, c = self.second, self.slope
        plain = self.sixth - 3.0 * self.fourth * e + 2.0 * e**3
        with_one = 2.0 * self.fourth_slope - 4.0 * e * c
        with_two = 4.0 * self.curvature + 8.0 * c
        direction = plain - 3.0 * c * with_one + 3.0 * c**2 * with_two - 8.0 * c**3
        return 8.0 * e**3 + direction + 12.0 * e * (self.fourth - e**2 - 2.0 * c**2)

    @property
    def slope_known(self) -> float:
        """cov(ψ′², z²), which the sphere takes out."""
        return self.eta - self.mu_1

    @property
    def along(self) -> float:
        """N times the squared part of Jᵀg along h, of a g of squared length N."""
        return self.second if self.through_scale else self.eta

    @property
    def passed(self) -> float:
        """The gain of J for a gradient along x = φ(h)."""
        more = self.second**2 - self.slope**2 if self.through_scale else 0.0
        return (self.both + more) / self.second

    @property
    def mean_shift(self) -> float:
        """N times what finitely many units add to μ₁: the sphere, and the derivative of s."""
        return -self.mu_1_curvature + (self.second - self.eta if self.through_scale else 0.0)


@lru_cache(maxsize=64)
def relative_layer(phi: Relative) -> RelativeLayer:
    """The figures of a relative φ."""
    psi = phi.psi
    around = np.array([1.0 - _STEP, 1.0, 1.0 + _STEP])
    sixth = float(psi.moment(6, 1.0))
    fourth, mu_1 = psi.moment(4, around), psi.slope_moment(1, around)
    return RelativeLayer(
        second=psi.second_moment(1.0),
        fourth=float(fourth[1]),
        fourth_slope=_slope(fourth),
        sixth=sixth,
        slope=psi.second_moment_slope(1.0),
        curvature=psi.second_moment_curvature(1.0),
        mu_1=float(mu_1[1]),
        mu_2=psi.slope_moment(2, 1.0),
        mu_1_curvature=float(mu_1[0] - 2.0 * mu_1[1] + mu_1[2]) / _STEP**2,
        both=psi.square_slope_moment(1.0),
        eta=psi.input_slope_moment(1.0),
        # cov(f(z), z²) is twice the derivative of E[f(√q z)] in q.
        silent_known=2.0 * _slope(psi.sparsity(around)) ** 2,
        saturated_known=2.0 * _slope(psi.saturation(around)) ** 2,
        through_scale=phi.through_scale,
    )


def _slope(around: Array) -> float:
    """The derivative in q at 1, of a figure at 1 − step, 1, 1 + step."""
    return float(around[2] - around[0]) / (2.0 * _STEP)


def on_units(phi: Activation, h: Array) -> Array:
    """φ of whole layers, their units along the last axis."""
    return phi.on_units(h) if isinstance(phi, Relative) else phi(h)


def backward_on_units(phi: Activation, h: Array, gradient: Array) -> Array:
    """The gradient in h from that in φ(h), of whole layers."""
    if isinstance(phi, Relative):
        return phi.backward_on_units(h, gradient)
    return np.asarray(phi.derivative(h) * gradient)
