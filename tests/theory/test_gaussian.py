"""The truncated moments under everything else, against 60-digit quadrature."""

import mpmath
import numpy as np
import pytest

from hush.theory._gaussian import interval_moments, tail_moments


@pytest.mark.parametrize("t", [-30.0, -2.0, 0.0, 0.7, 2.9, 3.0, 3.1, 10.0, 37.0])
def test_tail_moments(t: float) -> None:
    with mpmath.workdps(60):
        for k, value in enumerate(tail_moments(np.array([t]), 6)):
            # ∫_t^∞ (z − t)^k/k! γ(dz) is a parabolic cylinder function.
            expected = mpmath.exp(-(mpmath.mpf(t) ** 2) / 4) * mpmath.pcfd(-k - 1, t) / mpmath.sqrt(2 * mpmath.pi)
            assert float(abs(value[0] / expected - 1)) < 1e-10


@pytest.mark.parametrize("start", [-20.0, -1.0, 0.0, 2.0, 30.0])
@pytest.mark.parametrize("width", [1e-9, 1e-3, 0.13, 2.0, 25.0])
def test_interval_moments(start: float, width: float) -> None:
    ours = interval_moments(np.array([start]), np.array([start + width]), np.array([width]), 2)
    with mpmath.workdps(60):
        a, w = mpmath.mpf(start), mpmath.mpf(width)
        peak = mpmath.mpf(max(start, min(0.0, start + width)))
        marks = sorted({a, a + w, *(m for d in range(-12, 13) if a < (m := peak + mpmath.mpf(d) / 2) < a + w)})
        for k, value in enumerate(ours):
            scaled = mpmath.quad(lambda z, k=k: (z - a) ** k * mpmath.exp((peak**2 - z**2) / 2), marks)
            expected = scaled * mpmath.exp(-(peak**2) / 2) / mpmath.sqrt(2 * mpmath.pi)
            assert float(abs(value[0] / expected - 1)) < 1e-11


def test_the_whole_line() -> None:
    assert interval_moments(np.array([-np.inf]), np.array([np.inf]), np.array([np.inf]), 0)[0] == [1.0]
