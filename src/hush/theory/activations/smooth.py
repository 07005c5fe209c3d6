"""Any activation given as a function, its Gaussian integrals by quadrature with an error estimate.

GELU, SiLU, tanh and the like have no closed forms; here x = √q z is integrated on panels that follow the kinks and the
scale of φ (`_panels`), and two correlated inputs are expanded in Hermite polynomials (`_mehler`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from hush.theory._arrays import Array, Value, as_array, in_form_of, offender
from hush.theory.activations._mehler import expect_product
from hush.theory.activations._panels import nodes_and_weights

__all__ = ["Smooth"]

Function = Callable[[Array], Array]

# So many (q, node) pairs are held in memory at a time.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Smooth:
    """φ as a function of arrays, continuous, smooth but for the kinks that are named.

    Arguments:
        function: φ, elementwise on float64 arrays.
        slope: φ′; without it differences of φ are taken, good to about 1e-9.
        name: how φ is called in messages and tables.
        kinks: where φ′ jumps.
        scale: over what distance φ bends; 1 for GELU, SiLU and tanh.
        flat: the intervals on which φ is constant: silent where that is 0, saturated elsewhere.
        limit: sup |φ|, ∞ when φ keeps growing.
        odd: whether φ(−x) = −φ(x).

    Two are equal when they are made of the same functions and numbers.

    Raises:
        ValueError: if the kinks do not increase, the scale or limit is not positive, or φ jumps at a kink.
    """

    function: Function
    slope: Function | None = None
    name: str = field(default="smooth", compare=False)
    kinks: tuple[float, ...] = ()
    scale: float = 1.0
    flat: tuple[tuple[float, float], ...] = ()
    limit: float = math.inf
    odd: bool = False

    def __post_init__(self) -> None:
        kinks = tuple(float(kink) for kink in self.kinks)
        object.__setattr__(self, "kinks", kinks)
        if not all(map(math.isfinite, kinks)) or any(b <= a for a, b in pairwise(kinks)):
            raise ValueError(f"kinks must be finite and strictly increasing, got {kinks}.")
        if not (math.isfinite(self.scale) and self.scale > 0.0):
            raise ValueError(f"scale must be positive and finite, got {self.scale}.")
        if not self.limit > 0.0:
            raise ValueError(f"limit must be positive, got {self.limit}.")
        for kink in kinks:
            beside = np.array([kink - 1e-9 * self.scale, kink + 1e-9 * self.scale])
            below, above = self.function(beside)
            if not abs(above - below) <= 1e-6 * max(self.scale, abs(below), abs(above)):
                raise ValueError(
                    f"{self.name} jumps at {kink:g}, from {below:g} to {above:g}; Smooth is for continuous φ, and a "
                    f"piecewise-linear φ may jump as PiecewiseLinear."
                )

    def __call__(self, x: Value) -> Value:
        """φ(x), elementwise."""
        return in_form_of(x, np.asarray(self.function(as_array(x)), dtype=np.float64))

    def derivative(self, x: Value) -> Value:
        """φ′(x), elementwise: the one given, or a difference of φ that stays on one side of every kink."""
        points = as_array(x)
        if self.slope is not None:
            return in_form_of(x, np.asarray(self.slope(points), dtype=np.float64))
        step = np.full(points.shape, 1e-3 * self.scale)
        for kink in self.kinks:
            step = np.minimum(step, np.maximum(0.4 * abs(points - kink), 1e-7 * self.scale))
        near, far = (self.function(points + k * step) - self.function(points - k * step) for k in (1.0, 2.0))
        return in_form_of(x, (8.0 * near - far) / (12.0 * step))

    # --- moments ---

    def moment(self, power: int, q: Value) -> Value:
        """E[φ(√q z)^power], power from 1 to 6."""
        if power not in range(1, 7):
            raise ValueError(f"power must be 1, 2, …, 6, got {power}.")
        return self._of(f"moment {power}", q)

    def mean(self, q: Value) -> Value:
        """E[φ(√q z)]."""
        return self.moment(1, q)

    def second_moment(self, q: Value) -> Value:
        """E[φ(√q z)²]."""
        return self.moment(2, q)

    def second_moment_slope(self, q: Value) -> Value:
        """d/dq E[φ(√q z)²] = E[φ φ′ x]/q."""
        return self._of("slope", q)

    def second_moment_curvature(self, q: Value) -> Value:
        """d²/dq² E[φ(√q z)²] = E[φ φ′ x (z² − 3)]/(2q²)."""
        return self._of("curvature", q)

    def mean_slope(self, q: Value) -> Value:
        """E[φ′(√q z)]."""
        return self._of("mean slope", q)

    def slope_moment(self, k: int, q: Value) -> Value:
        """μ_k = E[φ′(√q z)^{2k}], k from 1 to 3."""
        if k not in (1, 2, 3):
            raise ValueError(f"k must be 1, 2 or 3, got {k}.")
        return self._of(f"slope moment {k}", q)

    def square_slope_moment(self, q: Value) -> Value:
        """E[φ(√q z)² φ′(√q z)²]."""
        return self._of("square slope", q)

    def input_slope_moment(self, q: Value) -> Value:
        """E[x² φ′(x)²], x = √q z."""
        return self._of("input slope", q)

    def error_estimate(self, q: Value) -> Value:
        """The largest relative error among E[φ²], its slope in q, and E[φ′²]: 16 nodes a panel beside 24."""
        coarse, fine = (self._integrate(as_array(q).reshape(-1), count) for count in (16, 24))
        errors = [abs(coarse[key] - fine[key]) / np.maximum(abs(fine[key]), 1e-300) for key in _ESTIMATED]
        return in_form_of(q, np.max(errors, axis=0).reshape(np.shape(q)))

    # --- zeros and plateaus ---

    def sparsity(self, q: Value) -> Value:
        """P(φ(√q z) = 0) over the intervals named flat."""
        return self._mass(self.silent_intervals, q)

    def saturation(self, q: Value) -> Value:
        """P(φ ≠ 0, φ′ = 0) over the intervals named flat."""
        return self._mass(tuple(part for part in self.flat if part not in self.silent_intervals), q)

    @cached_property
    def silent_intervals(self) -> tuple[tuple[float, float], ...]:
        return tuple(part for part in self.flat if self._level(part) == 0.0)

    @cached_property
    def plateaus(self) -> tuple[float, ...]:
        return tuple(level for level in map(self._level, self.flat) if level != 0.0)

    # --- two correlated inputs ---

    def cross_moment(self, rho: Value, q_a: float | Value, q_b: float | Value) -> Value:
        """E[φ(u₁)φ(u₂)], u₁ ~ N(0, q_a), u₂ ~ N(0, q_b) with correlation ρ; elementwise."""
        found = expect_product(self.function, self._nodes, rho, q_a, q_b)
        return in_form_of(found, found)  # type: ignore[return-value]

    def cross_moment_slope(self, rho: Value, q_a: float | Value, q_b: float | Value) -> Value:
        """Its derivative in ρ, √(q_a q_b) E[φ′(u₁)φ′(u₂)]."""
        size = np.sqrt(as_array(q_a) * as_array(q_b))
        found = size * expect_product(self.derivative, self._nodes, rho, q_a, q_b)
        return in_form_of(found, found)  # type: ignore[return-value]

    def cross_moment_and_slope(self, rho: Value, q_a: float | Value, q_b: float | Value) -> tuple[Value, Value]:
        """Both."""
        return self.cross_moment(rho, q_a, q_b), self.cross_moment_slope(rho, q_a, q_b)

    # --- shape ---

    def bound(self) -> float:
        """sup |φ|."""
        return self.limit

    @property
    def scales(self) -> tuple[float, ...]:
        """Three decades below the scale φ is a straight line to 1e-6 of its values; kinks may lie further out."""
        distances = [abs(kink) for kink in self.kinks if kink]
        return min([1e-3 * self.scale, *distances]), max([self.scale, *distances])

    @property
    def is_homogeneous(self) -> bool:
        return False

    @property
    def is_odd(self) -> bool:
        return self.odd

    # --- evaluation ---

    def _level(self, part: tuple[float, float]) -> float:
        """φ on an interval on which it is constant."""
        left, right = part
        inside = right - self.scale if math.isinf(left) else left + min(self.scale, 0.5 * (right - left))
        return float(self.function(np.array([inside]))[0])

    def _mass(self, parts: tuple[tuple[float, float], ...], q: Value) -> Value:
        variances = _checked(q)
        root = np.sqrt(np.maximum(variances, 1e-300))
        total = np.zeros(variances.shape)
        for left, right in parts:
            total = total + ndtr(right / root) - ndtr(left / root)
        return in_form_of(q, total)

    def _of(self, quantity: str, q: Value) -> Value:
        """One of the integrals. All of them are computed together and those of the last q are kept: the nodes and the
        values of φ there, which take the time, serve every integral."""
        variances = _checked(q).reshape(-1)
        last, found = self._kept.last
        if not found or last.shape != variances.shape or not np.array_equal(last, variances):
            found = self._integrate(variances, 16)
            self._kept.last = variances.copy(), found
        return in_form_of(q, found[quantity].reshape(np.shape(q)))

    @cached_property
    def _kept(self) -> "_Kept":
        return _Kept()

    def _integrate(self, q: Array, count: int) -> dict[str, Array]:
        """Every integral at each q."""
        # At q = 0 all is φ(0) and φ′(0): a q so small that φ does not bend stands in.
        q = np.maximum(q, (1e-8 * self.scale) ** 2)
        parts: list[dict[str, Array]] = []
        step = max(1, _CHUNK // 4096)
        for start in range(0, q.size, step):
            parts.append(self._chunk(q[start : start + step], count))
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]} if parts else {}

    def _chunk(self, q: Array, count: int) -> dict[str, Array]:
        x, z, weights = self._nodes(np.zeros(q.size), np.sqrt(q), count=count)
        phi, slope = self.function(x), as_array(self.derivative(x))
        square, slope_square, product = phi * phi, slope * slope, phi * slope * x

        def mean(values: Array) -> Array:
            return np.asarray(np.einsum("ij,ij->i", weights, values))

        return {
            "moment 1": mean(phi),
            "moment 2": mean(square),
            "moment 3": mean(square * phi),
            "moment 4": mean(square * square),
            "moment 5": mean(square * square * phi),
            "moment 6": mean(square * square * square),
            "slope": mean(product) / q,
            "curvature": mean(product * (z * z - 3.0)) / (2.0 * q * q),
            "mean slope": mean(slope),
            "slope moment 1": mean(slope_square),
            "slope moment 2": mean(slope_square * slope_square),
            "slope moment 3": mean(slope_square * slope_square * slope_square),
            "square slope": mean(square * slope_square),
            "input slope": mean(x * x * slope_square),
        }

    def _nodes(self, centre: Array, spread: Array, *, count: int = 16, step: float = 1.0) -> tuple[Array, Array, Array]:
        ends = {end for part in self.flat for end in part if math.isfinite(end)}
        features = tuple(sorted({0.0, *self.kinks, *ends}))
        return nodes_and_weights(centre, spread, features, self.scale, count=count, step=step)


class _Kept:
    """The integrals over the last q they were asked for."""

    def __init__(self) -> None:
        self.last: tuple[Array, dict[str, Array]] = np.empty(0), {}


_ESTIMATED = ("moment 2", "slope", "slope moment 1")


def _checked(q: float | Array) -> Array:
    variances = as_array(q)
    good = (variances >= 0.0) & np.isfinite(variances)
    if not np.all(good):
        raise ValueError(f"q must be finite and not negative, got {offender(variances, good)}.")
    return variances
