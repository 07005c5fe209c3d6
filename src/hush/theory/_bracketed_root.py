"""A root between two points of opposite sign, by Brent's method.

`scipy.optimize.brentq` does the same; importing scipy.optimize takes as long as all the rest of the theory, and a
command that designs a network would wait for it. The steps are the same ones, so are the roots, and the tests hold
this function to scipy's, evaluation by evaluation.
"""

import math
from collections.abc import Callable

__all__ = ["bracketed_root"]

_MOST_STEPS = 100


def bracketed_root(
    f: Callable[[float], float], low: float, high: float, *, xtol: float = 2e-12, rtol: float = 4 * 2.0**-52
) -> float:
    """x between `low` and `high` with f(x) = 0, to within xtol + rtol·|x|.

    Raises:
        ValueError: if f has the same sign at both ends.
        RuntimeError: if it does not settle in 100 steps.
    """
    previous, current = low, high
    f_previous, f_current = f(previous), f(current)
    if f_previous == 0.0:
        return previous
    if f_current == 0.0:
        return current
    if (f_previous < 0.0) == (f_current < 0.0):
        raise ValueError(f"f has the same sign at both ends: f({low}) = {f_previous}, f({high}) = {f_current}.")
    opposite, f_opposite = previous, f_previous
    step = step_before = current - previous
    for _ in range(_MOST_STEPS):
        # The root lies between the current point and the opposite one; the current one is the better of the two.
        if f_previous != 0.0 and f_current != 0.0 and (f_previous < 0.0) != (f_current < 0.0):
            opposite, f_opposite = previous, f_previous
            step = step_before = current - previous
        if abs(f_opposite) < abs(f_current):
            previous, current, opposite = current, opposite, current
            f_previous, f_current, f_opposite = f_current, f_opposite, f_current
        tolerance = (xtol + rtol * abs(current)) / 2.0
        half = (opposite - current) / 2.0
        if f_current == 0.0 or abs(half) < tolerance:
            return current
        attempt = math.inf
        if abs(step_before) > tolerance and abs(f_current) < abs(f_previous):
            attempt = _interpolated(previous, current, opposite, f_previous, f_current, f_opposite)
        # An interpolation is taken only where it is short: less than the bracket, and shrinking.
        if 2.0 * abs(attempt) < min(abs(step_before), 3.0 * abs(half) - tolerance):
            step_before, step = step, attempt
        else:
            step_before = step = half
        previous, f_previous = current, f_current
        current += step if abs(step) > tolerance else math.copysign(tolerance, half)
        f_current = f(current)
    raise RuntimeError(f"no root to within {xtol:g} was found between {low} and {high} in {_MOST_STEPS} steps.")


def _interpolated(a: float, b: float, c: float, f_a: float, f_b: float, f_c: float) -> float:
    """The step from b to where the secant (if a is c) or the inverse parabola through the points meets zero."""
    if a == c:
        return -f_b * (b - a) / (f_b - f_a)
    slope_a = (f_a - f_b) / (a - b)
    slope_c = (f_c - f_b) / (c - b)
    below = slope_c * slope_a * (f_c - f_a)
    return -f_b * (f_c * slope_c - f_a * slope_a) / below if below else math.inf
