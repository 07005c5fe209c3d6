"""Activations over positions: K[t, t′] ← E[φ(h(t)) φ(h(t′))], and backwards G[t, t′] ← E[φ′(h(t)) φ′(h(t′))] G[t, t′].

Exact for Gaussian h: `Activation.cross_moment` and its slope, pair by pair. Jumps of φ are left out of φ′, as autograd
leaves them out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from hush.theory._arrays import Array
from hush.theory.activations.piecewise import PiecewiseLinear
from hush.theory.activations.protocol import Activation
from hush.theory.activations.relative import value_in_wide_layer
from hush.theory.positions.field import Field
from hush.theory.positions.kernel_table import PairFunction, over_pairs
from hush.theory.positions.step import GainNoise, Preactivation

__all__ = ["Activate", "activated_kernel", "read_by", "slope_kernel"]

# Where a position is silent its variance is 0, and a correlation undefined; this is 0 to every activation.
_SILENT = 1e-200
# For a share that needs two digits.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# The kernels of a field are asked for by the forward pass, the backward pass and the noise; they live as long as it.
_KNOWN: WeakKeyDictionary[Field, dict[tuple[Activation, str], Array]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Activate:
    """x ← φ(h), elementwise."""

    phi: Activation
    mixes_channels: ClassVar[bool] = False

    def forward(self, field: Field, width: int | None = None) -> Field:
        kernel = activated_kernel(self.phi, field)
        mean = np.asarray(self.phi.mean(np.maximum(field.profile, _SILENT)))
        return field.with_kernel(kernel, mean=mean, gaussian=False, noise=self._noise(field, width))

    def backward(self, gradient: Field, field: Field) -> Field:
        return gradient.with_kernel(gradient.kernel * slope_kernel(self.phi, field.first()))

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        """(μ₂/μ₁² − 1)(1 + 2/T_g)/(N T_h): T_g and T_h positions even out the gradient and the slopes.

        And where μ₁ depends on q, the noise of q, which neighbouring layers share.
        """
        q = max(field.variance, _SILENT)
        mu_1, mu_2 = self.phi.slope_moment(1, q), self.phi.slope_moment(2, q)
        if mu_1 < 1e-12:
            return GainNoise(0.0)
        even = (1.0 + 2.0 / gradient.effective_positions()) / field.effective_positions()
        around = self.phi.slope_moment(1, 1.02 * q), self.phi.slope_moment(1, q / 1.02)
        sensitivity = abs(math.log(max(around[0], 1e-300) / max(around[1], 1e-300))) / (2.0 * math.log(1.02))
        common = sensitivity * math.sqrt(field.sampling(width))
        return GainNoise(max(mu_2 / mu_1**2 - 1.0, 0.0) * even / width, common)

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        return (read_by(self.phi, field, width),)

    def _noise(self, field: Field, width: int | None) -> float:
        if width is None:
            return 0.0
        q = max(field.variance, _SILENT)
        second = self.phi.second_moment(q)
        if second <= 0.0:
            return 0.0
        sensitivity = q * self.phi.second_moment_slope(q) / second
        spread = self.phi.moment(4, q) - second**2
        if spread <= 0.0:
            return sensitivity**2 * field.noise
        # The first Hermite coefficient of φ²: by its share φ² of two positions covaries like their correlation.
        first = float(
            np.sum(_WEIGHTS * _NODES * value_in_wide_layer(self.phi, np.sqrt(q) * _NODES, np.asarray(q)) ** 2)
        )
        even = field.effective_positions(min(first**2 / spread, 1.0))
        return sensitivity**2 * field.noise + spread / second**2 / (width * even)


def read_by(phi: Activation, field: Field, width: int | None) -> Preactivation:
    """What φ reads in a Gaussian field."""
    profile = field.profile[0]
    return Preactivation(
        float(profile.mean()),
        float(profile.min()),
        float(profile.max()),
        float(np.mean(phi.sparsity(np.maximum(profile, _SILENT)))),
        float(np.sqrt(field.sampling(width))),
    )


def activated_kernel(phi: Activation, field: Field) -> Array:
    """E[φ(h_a(t)) φ(h_b(t′))] in the form of the field's kernel."""
    known = _KNOWN.setdefault(field, {})
    if (phi, "values") not in known:
        known[phi, "values"] = _elementwise(field, phi.cross_moment, lambda q: np.asarray(phi.second_moment(q)))
    return known[phi, "values"]


def slope_kernel(phi: Activation, field: Field) -> Array:
    """E[φ′(h_a(t)) φ′(h_b(t′))] in the form of the field's kernel."""
    known = _KNOWN.setdefault(field, {})
    if (phi, "slopes") in known:
        return known[phi, "slopes"]
    continuous = _without_jumps(phi)

    def slope(rho: Array, q_a: Array, q_b: Array) -> Array:
        return np.asarray(continuous.cross_moment_slope(rho, q_a, q_b) / np.sqrt(q_a * q_b))

    known[phi, "slopes"] = _elementwise(field, slope, lambda q: np.asarray(phi.slope_moment(1, q)))
    return known[phi, "slopes"]


def _elementwise(field: Field, function: PairFunction, on_diagonal: Callable[[Array], Array]) -> Array:
    if not field.gaussian:
        raise ValueError(
            "an activation needs a Gaussian field, as a random matrix makes it, but this one comes from an activation "
            "or a maximum; put a Dense or a Convolution in between."
        )
    n = field.inputs
    q = np.maximum(field.profile, _SILENT)
    result = np.empty(field.kernel.shape)
    for a in range(n):
        for b in range(a, n):
            rows, columns = q[a], q[b]
            kernel = np.atleast_2d(field.kernel[a, b])
            scale = np.sqrt(np.outer(rows, columns))
            rho = np.clip(kernel / scale, -1.0, 1.0)
            if field.stationary:
                values = over_pairs(function, rho.reshape(1, -1), rows, np.full(rho.size, columns[0])).reshape(-1)
                if a == b:
                    values[0] = on_diagonal(rows)[0]
            else:
                values = over_pairs(function, rho, rows, columns)
                if a == b:
                    np.fill_diagonal(values, on_diagonal(rows))
            result[a, b] = values
            if a != b:
                result[b, a] = _transposed(values, field)
    return result


def _transposed(values: Array, field: Field) -> Array:
    if not field.stationary:
        return values.T
    grid = values.reshape(field.shape)
    axes = tuple(range(grid.ndim))
    return np.asarray(np.roll(np.flip(grid, axes), 1, axes).reshape(-1))


def _without_jumps(phi: Activation) -> Activation:
    """The continuous function of the same slopes."""
    if not isinstance(phi, PiecewiseLinear) or phi.is_continuous:
        return phi
    offsets = [phi.offsets[0]]
    for kink, before, after in zip(phi.kinks, phi.slopes[:-1], phi.slopes[1:], strict=True):
        offsets.append(offsets[-1] + (before - after) * kink)
    return PiecewiseLinear(phi.kinks, phi.slopes, tuple(offsets), phi.name)
