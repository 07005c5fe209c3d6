"""A piecewise-linear activation φ as kinks and slopes, and its Gaussian integrals in closed form.

Every activation of the paper is piecewise linear, so one value object carries all of the theory: on each piece
φ(x) = v + α(x − anchor), and E[φ²], its derivatives in q, the sparsity and so on are sums over pieces of the
truncated Gaussian moments of `_gaussian`. The anchor is the end of the piece where |φ| is smallest, which makes
the terms of those sums positive: no cancellation, in the tails or for narrow clips.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hush.theory._arrays import Array, Value, as_array, in_form_of, offender
from hush.theory._gaussian import density
from hush.theory.activations import _price
from hush.theory.activations._piece import Piece, standard

__all__ = ["PiecewiseLinear"]


@dataclass(frozen=True)
class PiecewiseLinear:
    """φ(x) = slopes[i]·x + offsets[i] for kinks[i−1] < x ≤ kinks[i]; jumps are allowed.

    Arguments:
        kinks: the n points where φ changes, finite and strictly increasing.
        slopes: the n + 1 slopes, from the left.
        offsets: the n + 1 offsets, from the left.
        name: how φ is called in messages and tables.

    Raises:
        ValueError: if the kinks are not finite and strictly increasing, the lengths disagree, or a slope or
            offset is not finite.
    """

    kinks: tuple[float, ...]
    slopes: tuple[float, ...]
    offsets: tuple[float, ...]
    name: str = field(default="piecewise_linear", compare=False)

    def __post_init__(self) -> None:
        for label in ("kinks", "slopes", "offsets"):
            values = tuple(float(value) for value in getattr(self, label))
            if not all(math.isfinite(value) for value in values):
                raise ValueError(f"{label} must be finite numbers, got {values}.")
            object.__setattr__(self, label, values)
        if any(b <= a for a, b in zip(self.kinks, self.kinks[1:], strict=False)):
            raise ValueError(f"kinks must be strictly increasing, got {self.kinks}.")
        for label in ("slopes", "offsets"):
            if len(getattr(self, label)) != len(self.kinks) + 1:
                raise ValueError(
                    f"{len(self.kinks)} kinks need {len(self.kinks) + 1} {label}, got {len(getattr(self, label))}."
                )

    def __call__(self, x: Value) -> Value:
        """φ(x), elementwise. NaN stays NaN."""
        points = as_array(x)
        segment = self._segment(points)
        slope, offset = np.asarray(self.slopes)[segment], np.asarray(self.offsets)[segment]
        # 0·∞ would make a NaN of a saturated infinity.
        moving = slope * np.where(slope == 0.0, 0.0, points) + offset
        return in_form_of(x, np.where(np.isnan(points), np.nan, moving))

    def _segment(self, points: Array, *, after: bool = False) -> NDArray[np.intp]:
        """The segment of each point; of a kink the one before it or `after` it. Of NaN, any."""
        # There are few kinks, and comparing with each takes a third of the time of np.searchsorted.
        segment = np.zeros(points.shape, dtype=np.intp)
        for kink in self.kinks:
            segment += points >= kink if after else points > kink
        return segment

    def derivative(self, x: Value) -> Value:
        """φ′(x), elementwise; at a kink the slope of smaller magnitude, so silent and saturated ends count as flat."""
        points, slopes = as_array(x), np.asarray(self.slopes)
        if not self.kinks:
            return in_form_of(x, np.where(np.isnan(points), np.nan, slopes[0]))
        left, right = slopes[self._segment(points)], slopes[self._segment(points, after=True)]
        return in_form_of(x, np.where(np.isnan(points), np.nan, np.where(abs(left) <= abs(right), left, right)))

    # --- Gaussian integrals, x ~ N(0, q); each is vectorised over q ≥ 0 ---

    def moment(self, power: int, q: Value) -> Value:
        """E[φ(√q z)^power], power from 1 to 6."""
        if power not in range(1, 7):
            raise ValueError(f"power must be 1, 2, …, 6, got {power}.")
        at_zero = self._limit(lambda v: v**power)
        return self._expect(lambda piece, root: piece.moment(power, root), q, at_zero, even=power % 2 == 0)

    def mean(self, q: Value) -> Value:
        """E[φ(√q z)]."""
        return self.moment(1, q)

    def second_moment(self, q: Value) -> Value:
        """E[φ(√q z)²]."""
        return self.moment(2, q)

    def second_moment_slope(self, q: Value) -> Value:
        """d/dq E[φ(√q z)²] = E[φ φ′ x]/q, and Δ(φ²) k n(k)/(2q) for each jump at k = κ/√q."""

        def jumps(root: Array) -> Array:
            total = np.zeros(root.shape)
            for kink, step in self._square_jumps:
                k = standard(kink, root)
                total = total + step * k * density(k)
            return total / root / root / 2.0

        at_zero = self._slope_at_zero()
        return self._expect(lambda piece, root: piece.slope(root), q, at_zero, jumps, pieces=self._sloped)

    def second_moment_curvature(self, q: Value) -> Value:
        """d²/dq² E[φ(√q z)²] = E[φ φ′ x (z² − 3)]/(2q²), and Δ(φ²) k n(k)(k² − 3)/(4q²) for each jump."""

        def jumps(root: Array) -> Array:
            total = np.zeros(root.shape)
            for kink, step in self._square_jumps:
                k = np.clip(standard(kink, root), -1e3, 1e3)
                total = total + step * k * density(k) * (k * k - 3.0)
            return total / root / root / root / root / 4.0

        at_zero = self._curvature_at_zero()
        return self._expect(lambda piece, root: piece.curvature(root), q, at_zero, jumps, pieces=self._unsplit)

    def mean_slope(self, q: Value) -> Value:
        """E[φ′(√q z)], jumps left out."""
        at_zero = self._slope_limit(lambda a: a)
        return self._expect(lambda piece, root: piece.alpha * piece.mass(root), q, at_zero, pieces=self._sloped)

    def slope_moment(self, k: int, q: Value) -> Value:
        """μ_k = E[φ′(√q z)^{2k}] (paper, eq. 27)."""
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}.")

        def power(piece: Piece, root: Array) -> Array:
            return piece.alpha ** (2 * k) * piece.mass(root)

        return self._expect(power, q, self._slope_limit(lambda a: a ** (2 * k)), pieces=self._sloped)

    def sparsity(self, q: Value) -> Value:
        """P(φ(√q z) = 0): the share of hidden units that are exactly zero (paper, eq. 12)."""
        return self._probability(lambda slope, value: slope == 0.0 and value == 0.0, q)

    def saturation(self, q: Value) -> Value:
        """P(φ ≠ 0, φ′ = 0): the share of units above the clip, active forward and silent backward."""
        return self._probability(lambda slope, value: slope == 0.0 and value != 0.0, q)

    def square_slope_moment(self, q: Value) -> Value:
        """E[φ(√q z)² φ′(√q z)²]: what ties the noise of the gradient to that of the variance."""

        def both(piece: Piece, root: Array) -> Array:
            return piece.alpha**2 * piece.moment(2, root)

        value, slope = self._limit(lambda v: v**2), self._slope_limit(lambda a: a**2)
        return self._expect(both, q, value * slope, pieces=self._sloped)

    def input_slope_moment(self, q: Value) -> Value:
        """E[x² φ′(x)²], x = √q z: how far out the units sit that pass a gradient."""

        def square(piece: Piece, root: Array) -> Array:
            return piece.alpha**2 * piece.input_square(root)

        return self._expect(square, q, 0.0, pieces=self._sloped)

    # --- two correlated inputs, by Price's theorem ---

    def cross_moment(self, rho: Value, q_a: float | Value, q_b: float | Value) -> Value:
        """c(ρ) = E[φ(u₁)φ(u₂)], u₁ ~ N(0, q_a), u₂ ~ N(0, q_b) with correlation ρ; elementwise."""
        (value,) = _price.evaluate(self, rho, q_a, q_b, (_price.cross_value,))
        return value  # type: ignore[return-value]

    def cross_moment_slope(self, rho: Value, q_a: float | Value, q_b: float | Value) -> Value:
        """c′(ρ) = √(q_a q_b) E[φ′(u₁)φ′(u₂)]; infinite at ρ = ±1 where jumps of φ meet."""
        (slope,) = _price.evaluate(self, rho, q_a, q_b, (_price.cross_slope,))
        return slope  # type: ignore[return-value]

    def cross_moment_and_slope(self, rho: Value, q_a: float | Value, q_b: float | Value) -> tuple[Value, Value]:
        """(c, c′), in little more time than one of them."""
        value, slope = _price.evaluate(self, rho, q_a, q_b, (_price.cross_value, _price.cross_slope))
        return value, slope  # type: ignore[return-value]

    # --- geometry ---

    @cached_property
    def silent_intervals(self) -> tuple[tuple[float, float], ...]:
        """The intervals on which φ is exactly 0."""
        return tuple((left, right) for left, right, slope, offset in self.segments() if slope == offset == 0.0)

    @cached_property
    def plateaus(self) -> tuple[float, ...]:
        """The values other than 0 that φ keeps over a whole interval."""
        flat = zip(self.slopes, self.offsets, strict=True)
        return tuple(offset for slope, offset in flat if slope == 0.0 and offset != 0.0)

    @cached_property
    def scales(self) -> tuple[float, ...]:
        """The smallest and the largest distance of a kink from 0, leaving out a kink at 0 itself.

        Without such a kink an offset sets the scale, if there is one.
        """
        distances = [abs(value) for value in self.kinks if value] or [abs(value) for value in self.offsets if value]
        return (min(distances), max(distances)) if distances else ()

    @cached_property
    def jumps(self) -> tuple[float, ...]:
        """φ(κ⁺) − φ(κ⁻) at each kink; all zero when φ is continuous."""
        return tuple(right - left for left, right in self._limits)

    @property
    def is_continuous(self) -> bool:
        return not any(self.jumps)

    @property
    def is_homogeneous(self) -> bool:
        """φ(ax) = aφ(x) for a > 0: ReLU, leaky ReLU, the identity."""
        return all(kink == 0.0 for kink in self.kinks) and not any(self.offsets)

    @cached_property
    def is_odd(self) -> bool:
        return (
            self.kinks == tuple(-kink for kink in reversed(self.kinks))
            and self.slopes == self.slopes[::-1]
            and self.offsets == tuple(-offset for offset in reversed(self.offsets))
        )

    def bound(self) -> float:
        """sup |φ|, ∞ when φ keeps growing."""
        if self.slopes[0] or self.slopes[-1]:
            return math.inf
        return max(abs(value) for value in (self.offsets[0], self.offsets[-1], *(v for p in self._limits for v in p)))

    def reflected(self) -> "PiecewiseLinear":
        """x ↦ φ(−x)."""
        return PiecewiseLinear(
            tuple(-kink for kink in reversed(self.kinks)),
            tuple(-slope for slope in reversed(self.slopes)),
            self.offsets[::-1],
            f"reflected {self.name}",
        )

    def segments(self) -> list[tuple[float, float, float, float]]:
        """(left, right, slope, offset) of each piece, from −∞ to ∞."""
        edges = (-math.inf, *self.kinks, math.inf)
        return list(zip(edges[:-1], edges[1:], self.slopes, self.offsets, strict=True))

    @cached_property
    def _limits(self) -> list[tuple[float, float]]:
        """(φ(κ⁻), φ(κ⁺)) at each kink. A rounding-size difference is no jump."""
        limits = []
        for i, kink in enumerate(self.kinks):
            left = self.slopes[i] * kink + self.offsets[i]
            right = self.slopes[i + 1] * kink + self.offsets[i + 1]
            scale = abs(kink) * max(abs(self.slopes[i]), abs(self.slopes[i + 1])) + abs(self.offsets[i])
            if abs(left - right) <= 1e-14 * scale:
                # Of the two sides the flat one is exact: 0 below the threshold, m above the clip.
                exact = left if self.slopes[i] == 0.0 else right if self.slopes[i + 1] == 0.0 else left
                left = right = exact
            limits.append((left, right))
        return limits

    @cached_property
    def _square_jumps(self) -> list[tuple[float, float]]:
        limits = zip(self.kinks, self._limits, strict=True)
        return [(kink, right**2 - left**2) for kink, (left, right) in limits if left != right]

    def _ends(self, i: int) -> tuple[float, float]:
        """φ at the two ends of segment i, taken from inside; infinite where it grows without end."""
        slope, offset = self.slopes[i], self.offsets[i]
        left = self._limits[i - 1][1] if i > 0 else -slope * math.inf if slope else offset
        right = self._limits[i][0] if i < len(self.kinks) else slope * math.inf if slope else offset
        return left, right

    @cached_property
    def _pieces(self) -> list[Piece]:
        """The segments, split where φ crosses zero, each anchored where |φ| is smallest."""
        pieces = []
        for i, (left, right, slope, offset) in enumerate(self.segments()):
            at_left, at_right = self._ends(i)
            if slope and at_left * at_right < 0.0:
                zero = -offset / slope
                pieces.append(Piece(left, zero, 0.0, slope, mirrored=True))
                pieces.append(Piece(zero, right, 0.0, slope, mirrored=False))
            else:
                mirrored = left == -math.inf or abs(at_right) < abs(at_left)
                pieces.append(Piece(left, right, at_right if mirrored else at_left, slope, mirrored))
        return pieces

    @cached_property
    def _sloped(self) -> list[Piece]:
        return [piece for piece in self._pieces if piece.alpha]

    @cached_property
    def _unsplit(self) -> list[Piece]:
        """The sloped segments as they are. Two pieces that meet at a zero of φ would cancel in V″."""
        pieces = []
        for i, (left, right, slope, _) in enumerate(self.segments()):
            if slope and self.kinks:
                mirrored = left == -math.inf
                pieces.append(Piece(left, right, self._ends(i)[mirrored], slope, mirrored))
        return pieces

    # --- evaluation over q ---

    def _expect(
        self,
        term: Callable[[Piece, Array], Array],
        q: Value,
        at_zero: float,
        extra: Callable[[Array], Array] | None = None,
        even: bool = True,
        pieces: list[Piece] | None = None,
    ) -> Value:
        """Σ over pieces of term(piece, √q), and the limit `at_zero` where q = 0.

        An even term has the same value on a piece and its mirror image, which halves the work for odd φ.
        """
        variances = as_array(q)
        good = (variances >= 0.0) & np.isfinite(variances)
        if not np.all(good):
            raise ValueError(f"q must be finite and not negative, got {offender(variances, good)}.")
        root = np.sqrt(np.where(variances > 0.0, variances, 1.0)).reshape(-1)
        total = np.zeros(root.shape)
        for piece in self._pieces if pieces is None else pieces:
            if not (even and self.is_odd):
                total = total + term(piece, root)
            elif piece.right > 0.0:
                total = total + (2.0 if piece.left >= 0.0 else 1.0) * term(piece, root)
        if extra is not None and self._square_jumps:
            total = total + extra(root)
        return in_form_of(q, np.where(variances > 0.0, total.reshape(variances.shape), at_zero))

    def _probability(self, wanted: Callable[[float, float], bool], q: Value) -> Value:
        def mass(piece: Piece, root: Array) -> Array:
            return piece.mass(root) if wanted(piece.alpha, piece.value) else np.zeros(root.shape)

        left, right = self._at_zero()
        share = [float(wanted(slope, value)) for slope, value in (left, right)]
        return self._expect(mass, q, 0.5 * sum(share))

    def _at_zero(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """(φ′, φ) just left and just right of x = 0."""
        left, right = bisect_left(self.kinks, 0.0), bisect_right(self.kinks, 0.0)
        return (self.slopes[left], self.offsets[left]), (self.slopes[right], self.offsets[right])

    def _limit(self, of: Callable[[float], float]) -> float:
        (_, left), (_, right) = self._at_zero()
        return 0.5 * (of(left) + of(right))

    def _slope_limit(self, of: Callable[[float], float]) -> float:
        (left, _), (right, _) = self._at_zero()
        return 0.5 * (of(left) + of(right))

    def _slope_at_zero(self) -> float:
        # E φ² = (v₋² + v₊²)/2 + √(q/2π)·2(v₊α₊ − v₋α₋)/2 + q(α₋² + α₊²)/2 near q = 0.
        (left, v_left), (right, v_right) = self._at_zero()
        linear = v_right * right - v_left * left
        return math.copysign(math.inf, linear) if linear else 0.5 * (left**2 + right**2)

    def _curvature_at_zero(self) -> float:
        (left, v_left), (right, v_right) = self._at_zero()
        linear = v_right * right - v_left * left
        return math.copysign(math.inf, -linear) if linear else 0.0
