"""The band of correlations."""

import numpy as np

import hush
from hush.theory import (
    correlation_band,
)

DESIGN = hush.design("crelu", 0.85, v_prime=0.7)
CHAIN = (DESIGN.phi(), DESIGN.sigma_w, DESIGN.sigma_b)


def test_correlations_approach_one() -> None:
    band = correlation_band(*CHAIN, 300, 40, q_start=1.0, correlations=np.array([0.2]))
    assert abs(band.median[0] - 0.2) < 0.03
    assert band.median[-1] > 0.98
    assert all(low <= mid <= high for low, mid, high in zip(band.low, band.median, band.high, strict=True))
