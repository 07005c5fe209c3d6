"""One linear piece of an activation and its share of each Gaussian integral."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hush.theory._arrays import Array
from hush.theory._gaussian import density, interval_moments, is_narrow

# Kinks further out than this many standard deviations carry no mass; the bound keeps their squares finite.
_FAR = 1e150


class _Kept:
    """The moments of a piece over the last √q they were asked for."""

    def __init__(self) -> None:
        self.last: tuple[Array, list[Array]] = np.empty(0), []


@dataclass(frozen=True)
class Piece:
    """One linear piece of φ. `value` is φ at the anchor: the left end, or the right end when `mirrored`."""

    left: float
    right: float
    value: float
    alpha: float
    mirrored: bool

    def _interval(self, root: Array) -> tuple[Array, Array, Array]:
        """(anchor, far end, width) in units of √q, reflected to start at the anchor."""
        left, right = (-self.right, -self.left) if self.mirrored else (self.left, self.right)
        return standard(left, root), standard(right, root), standard(right - left, root)

    def _moments(self, root: Array, order: int) -> list[Array]:
        """∫ u^k γ over this piece for k = 0 … order at least, u measured from the anchor.

        The last ones are kept, so that whoever tabulates several expectations over the same q pays for the highest
        order alone. They are written in one assignment, so that two threads never see those of one q beside another.
        """
        kept = self._kept
        last, moments = kept.last
        if len(moments) <= order or last.shape != root.shape or not np.array_equal(last, root):
            moments = interval_moments(*self._interval(root), order)
            for moment in moments:
                moment.flags.writeable = False
            kept.last = root, moments
        return moments

    @cached_property
    def _kept(self) -> _Kept:
        return _Kept()

    def mass(self, root: Array) -> Array:
        """P(√q z in this piece)."""
        return self._moments(root, 0)[0]

    def moment(self, power: int, root: Array) -> Array:
        """E[φ^power] over this piece: (v + α√q u)^power, u measured from the anchor."""
        if self.alpha == 0.0:
            return self.value**power * self.mass(root) if self.value else np.zeros(root.shape)
        rise = -self.alpha if self.mirrored else self.alpha
        moments = self._moments(root, power)
        terms = [
            math.comb(power, k) * self.value ** (power - k) * (rise * root) ** k * moments[k] for k in range(power + 1)
        ]
        return np.asarray(sum(terms))

    def input_square(self, root: Array) -> Array:
        """E[x²] over this piece, a sloped one."""
        a = self._interval(root)[0]
        m0, m1, m2 = self._moments(root, 2)[:3]
        a = np.where(m0 == 0.0, 0.0, a)
        return (a * a * m0 + 2.0 * a * m1 + m2) * root * root

    def slope(self, root: Array) -> Array:
        """E[φ φ′ x]/q over this piece, a sloped one: α² E[(d + u)(a + u)], d = v/(α√q), a the anchor in units of √q."""
        return self.alpha**2 * slope_share(self._interval(root)[0], self._rise(root), self._moments(root, 2))

    def curvature(self, root: Array) -> Array:
        """E[φ φ′ x (z² − 3)]/(2q²) over this piece, a sloped one: α²/(2q) E[(d + u)(a + u)((a + u)² − 3)]."""
        return self.alpha**2 * curvature_share(*self._interval(root), self._rise(root)) / root / root / 2.0

    def _rise(self, root: Array) -> Array:
        """d = |φ|/(|α|√q) at the anchor, with the sign that makes (d + u) grow away from it."""
        return (-self.value if self.mirrored else self.value) / (self.alpha * root)


def slope_share(a: Array, d: Array, moments: list[Array]) -> Array:
    """E[(d + u)(a + u)] over intervals that start at a and have these moments."""
    m0, m1, m2 = moments[:3]
    # Where an interval is out of reach its moments are 0 and a may be 1e150: keep their product 0.
    a = np.where(m0 == 0.0, 0.0, a)
    return d * a * m0 + (d + a) * m1 + m2


def curvature_share(a: Array, b: Array, width: Array, d: Array) -> Array:
    """E[(d + u)(a + u)((a + u)² − 3)] over the intervals from a to b."""
    # Wide: the antiderivative of z(z − ζ)(z² − 3)n(z) is −(z²(z − ζ) + ζ)n(z), with ζ = a − d.
    total = np.asarray(_curvature_edge(a, d, 0.0) - _curvature_edge(b, d, np.where(np.isfinite(b), width, 0.0)))
    narrow = is_narrow(a, b, width)
    if narrow.any():
        # There the two ends cancel: expand about the anchor instead.
        a, d = a[narrow], d[narrow]
        m = interval_moments(a, b[narrow], width[narrow], 4)
        # (d + u)(a + u)(c + 2au + u²), c = a² − 3
        c = a * a - 3.0
        coefficients = (
            d * a * c,
            (d + a) * c + 2 * d * a * a,
            c + 2 * a * (d + a) + d * a,
            3 * a + d,
            np.ones(a.shape),
        )
        total[narrow] = sum(k * moment for k, moment in zip(coefficients, m, strict=True))
    return total


def _curvature_edge(z: Array, d: Array, u: Array | float) -> Array:
    """(z²(z − ζ) + ζ) n(z) at z = a + u, with z − ζ = d + u and so ζ = z − d − u; 0 far out."""
    z = np.clip(z, -1e3, 1e3)
    return (z * z * (d + u) + (z - d - u)) * density(z)


def standard(kink: float, root: Array) -> Array:
    """κ/√q, with the infinite ends kept and the merely huge ones kept finite."""
    if math.isinf(kink):
        return np.full(root.shape, kink)
    return np.minimum(np.maximum(kink / root, -_FAR), _FAR)  # np.clip has more overhead than work
