"""What the theory asks of an activation φ, whatever it is made of.

`PiecewiseLinear` answers with closed forms, `Smooth` with quadrature, and `Relative` for a threshold in units of its
layer, φ(h) = s ψ(h/s) with s the layer's own root mean square, for which E[φ²] is linear in q.

Everything is an expectation over x = √q z, z standard normal, and is a function of q: a float gives a float, an array
an array.
"""

from typing import Protocol

from hush.theory._arrays import Value

__all__ = ["Activation"]


class Activation(Protocol):
    """An elementwise function φ with its Gaussian integrals; hashable, equal where it is the same function."""

    @property
    def name(self) -> str:
        """How φ is called in messages and tables."""
        ...

    def __call__(self, x: Value) -> Value:
        """φ(x)."""
        ...

    def derivative(self, x: Value) -> Value:
        """φ′(x)."""
        ...

    def __hash__(self) -> int: ...

    # --- moments of φ and of its slope ---

    def moment(self, power: int, q: Value) -> Value:
        """E[φ(x)^power], power from 1 to 6."""
        ...

    def mean(self, q: Value) -> Value:
        """E[φ(x)]."""
        ...

    def second_moment(self, q: Value) -> Value:
        """E[φ(x)²]."""
        ...

    def second_moment_slope(self, q: Value) -> Value:
        """d/dq E[φ(x)²]."""
        ...

    def second_moment_curvature(self, q: Value) -> Value:
        """d²/dq² E[φ(x)²]."""
        ...

    def mean_slope(self, q: Value) -> Value:
        """E[φ′(x)], jumps left out."""
        ...

    def slope_moment(self, k: int, q: Value) -> Value:
        """μ_k = E[φ′(x)^{2k}]."""
        ...

    def square_slope_moment(self, q: Value) -> Value:
        """E[φ(x)² φ′(x)²]."""
        ...

    def input_slope_moment(self, q: Value) -> Value:
        """E[x² φ′(x)²]."""
        ...

    # --- zeros and plateaus ---

    def sparsity(self, q: Value) -> Value:
        """P(φ(x) = 0), leaving out single points."""
        ...

    def saturation(self, q: Value) -> Value:
        """P(φ(x) ≠ 0, φ′(x) = 0) over the plateaus."""
        ...

    @property
    def silent_intervals(self) -> tuple[tuple[float, float], ...]:
        """The intervals on which φ is exactly 0, from the left; their ends may be infinite."""
        ...

    @property
    def plateaus(self) -> tuple[float, ...]:
        """The values other than 0 that φ keeps over a whole interval."""
        ...

    # --- two correlated inputs ---

    def cross_moment(self, rho: Value, q_a: float | Value, q_b: float | Value) -> Value:
        """c(ρ) = E[φ(u₁)φ(u₂)], u₁ ~ N(0, q_a), u₂ ~ N(0, q_b) with correlation ρ."""
        ...

    def cross_moment_slope(self, rho: Value, q_a: float | Value, q_b: float | Value) -> Value:
        """c′(ρ) = √(q_a q_b) E[φ′(u₁)φ′(u₂)]."""
        ...

    def cross_moment_and_slope(self, rho: Value, q_a: float | Value, q_b: float | Value) -> tuple[Value, Value]:
        """(c, c′), in little more time than one of them."""
        ...

    # --- the shape of φ, as far as searches and pictures need it ---

    def bound(self) -> float:
        """sup |φ|, ∞ when φ keeps growing."""
        ...

    @property
    def kinks(self) -> tuple[float, ...]:
        """Where φ is not smooth, in increasing order."""
        ...

    @property
    def scales(self) -> tuple[float, ...]:
        """The smallest and the largest |x| at which φ changes its shape; empty when it has no scale (ReLU).

        Where the standard deviation of x is far below the first, φ is a straight line to every x; where it is far above
        the last, φ looks like two half-lines.
        """
        ...

    @property
    def is_homogeneous(self) -> bool:
        """φ(ax) = aφ(x) for a > 0: ReLU, leaky ReLU, the identity."""
        ...

    @property
    def is_odd(self) -> bool:
        """φ(−x) = −φ(x)."""
        ...
