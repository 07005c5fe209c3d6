"""Brent's method against scipy's, evaluation by evaluation."""

import math
import random
from collections.abc import Callable

import pytest
from scipy.optimize import brentq

from hush.theory._bracketed_root import bracketed_root


def recorded(f: Callable[[float], float]) -> tuple[Callable[[float], float], list[float]]:
    seen: list[float] = []

    def watched(x: float) -> float:
        seen.append(x)
        return f(x)

    return watched, seen


def functions() -> list[tuple[Callable[[float], float], float, float]]:
    draw = random.Random(0)
    found: list[tuple[Callable[[float], float], float, float]] = [
        (lambda x: x**3 - 2.0, 0.0, 5.0),
        (lambda x: math.exp(x) - 1e3, -50.0, 40.0),
        (lambda x: math.atan(x - 1.0), -1e3, 1.7e3),
        (lambda x: -1.0 if x < 0.3 else 1.0, 0.0, 1.0),
        (lambda x: (x - 0.5) ** 3, 0.0, 0.9),
    ]
    for _ in range(200):
        a, b, root = draw.uniform(0.1, 9.0), draw.uniform(-3.0, 3.0), draw.uniform(-2.0, 2.0)
        found.append((lambda x, a=a, b=b, r=root: math.tanh(a * (x - r)) + b * b * (x - r), -3.0, 2.5))
    return found


@pytest.mark.parametrize(("xtol", "rtol"), [(2e-12, 4 * 2.0**-52), (5e-3, 1e-12), (1e-15, 1e-14)])
def test_the_same_points_are_evaluated_and_the_same_root_is_found(xtol: float, rtol: float) -> None:
    for f, low, high in functions():
        ours, mine = recorded(f)
        theirs, his = recorded(f)
        try:
            expected = brentq(theirs, low, high, xtol=xtol, rtol=rtol)
        except RuntimeError:  # of a triple root, more than 100 steps
            with pytest.raises(RuntimeError, match="in 100 steps"):
                bracketed_root(ours, low, high, xtol=xtol, rtol=rtol)
        else:
            assert bracketed_root(ours, low, high, xtol=xtol, rtol=rtol) == expected
        assert mine == his


def test_an_end_may_be_the_root() -> None:
    assert bracketed_root(lambda x: x, 0.0, 1.0) == 0.0
    assert bracketed_root(lambda x: x - 1.0, 0.0, 1.0) == 1.0


def test_the_same_sign_at_both_ends() -> None:
    with pytest.raises(ValueError, match=r"the same sign at both ends: f\(1.0\) = 1.0, f\(2.0\) = 4.0"):
        bracketed_root(lambda x: x * x, 1.0, 2.0)
