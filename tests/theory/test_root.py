"""Our Brent's method takes the steps of scipy's."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from hush.theory._root import find_root


def test_it_is_scipys_bit_by_bit() -> None:
    rng = np.random.default_rng(0)
    tried = 0
    while tried < 500:
        a, b, c, d = rng.normal(size=4)

        def function(x: float, a: float = a, b: float = b, c: float = c, d: float = d) -> float:
            return a * x**3 + b * math.sin(3.0 * x) + c * math.exp(min(x, 50.0)) + d

        low, high = sorted(5.0 * rng.normal(size=2))
        if function(low) * function(high) > 0.0:
            continue
        tried += 1
        xtol, rtol = 10.0 ** rng.uniform(-15, -2), 10.0 ** rng.uniform(-14, -3)
        ours = find_root(function, low, high, xtol=xtol, rtol=rtol)
        assert ours == brentq(function, low, high, xtol=xtol, rtol=rtol)


def test_a_root_at_an_end_is_found() -> None:
    assert find_root(lambda x: x - 1.0, 1.0, 2.0, xtol=1e-9) == 1.0
    assert find_root(lambda x: x - 2.0, 1.0, 2.0, xtol=1e-9) == 2.0


def test_equal_signs_are_refused() -> None:
    with pytest.raises(ValueError, match="the same sign at 1 and 2"):
        find_root(lambda x: x, 1.0, 2.0, xtol=1e-9)
