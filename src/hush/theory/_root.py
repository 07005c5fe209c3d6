"""Brent's method for the root of a function between two points at which its signs differ.

The same steps as scipy.optimize.brentq, which the tests hold it to bit by bit. It is written out here because importing
scipy.optimize would take a good part of the time of `import hush.theory`.
"""

import sys
from collections.abc import Callable

__all__ = ["find_root"]

_MOST_STEPS = 100


def find_root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float,
    rtol: float = 4.0 * sys.float_info.epsilon,
) -> float:
    """x between `low` and `high` with function(x) = 0, to within xtol + rtol·|x|.

    Raises:
        ValueError: if the function has the same sign at both ends.
    """
    before, now = float(low), float(high)
    f_before, f_now = function(before), function(now)
    if f_before == 0.0:
        return before
    if f_now == 0.0:
        return now
    if (f_before < 0.0) == (f_now < 0.0):
        raise ValueError(f"the function has the same sign at {low:g} and {high:g}, so no root is known between them.")
    # The root lies between `now` and `block`, where the function has the other sign.
    block = f_block = step = last_step = 0.0
    for _ in range(_MOST_STEPS):
        if f_before != 0.0 and f_now != 0.0 and (f_before < 0.0) != (f_now < 0.0):
            block, f_block = before, f_before
            step = last_step = now - before
        if abs(f_block) < abs(f_now):
            before, now, block = now, block, now
            f_before, f_now, f_block = f_now, f_block, f_now
        tolerance = (xtol + rtol * abs(now)) / 2.0
        bisection = (block - now) / 2.0
        if f_now == 0.0 or abs(bisection) < tolerance:
            return now
        if abs(last_step) > tolerance and abs(f_now) < abs(f_before):
            if before == block:
                # The line through two points.
                attempt = -f_now * (now - before) / (f_now - f_before)
            else:
                # The inverse parabola through three.
                d_before = (f_before - f_now) / (before - now)
                d_block = (f_block - f_now) / (block - now)
                attempt = (
                    -f_now * (f_block * d_block - f_before * d_before) / (d_block * d_before * (f_block - f_before))
                )
            if 2.0 * abs(attempt) < min(abs(last_step), 3.0 * abs(bisection) - tolerance):
                last_step, step = step, attempt
            else:
                last_step = step = bisection
        else:
            last_step = step = bisection
        before, f_before = now, f_now
        now += step if abs(step) > tolerance else (tolerance if bisection > 0.0 else -tolerance)
        f_now = function(now)
    return now
