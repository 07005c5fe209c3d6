"""The spread of the inputs' norms."""

import math

import numpy as np
import pytest

from hush.theory import (
    IMAGE_NORMS,
    InputNorms,
)


class TestInputNorms:
    def test_quantiles_come_back(self) -> None:
        scores = np.random.default_rng(0).standard_normal(200_000)
        drawn = IMAGE_NORMS.at(scores)
        assert np.quantile(drawn, IMAGE_NORMS.levels) == pytest.approx(IMAGE_NORMS.values, rel=0.01)

    def test_measured_norms(self) -> None:
        measured = np.random.default_rng(0).gamma(20.0, 3.0, size=50_000)
        norms = InputNorms.from_samples(measured)
        drawn = norms.at(np.random.default_rng(1).standard_normal(50_000))
        levels = [0.05, 0.5, 0.95]
        assert np.quantile(drawn, levels) == pytest.approx(np.quantile(measured, levels) / measured.mean(), rel=0.01)

    @pytest.mark.parametrize(
        ("levels", "values", "message"),
        [
            ((0.1, 0.5), (1.0,), "equally long, got 2 and 1"),
            ((0.5, 0.1), (1.0, 2.0), "levels must increase strictly"),
            ((0.1, 0.5), (2.0, 1.0), "values must be positive and must not decrease"),
            ((0.1, 0.5), (-1.0, 1.0), "values must be positive"),
        ],
    )
    def test_validation(self, levels, values, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            InputNorms(levels, values)

    @pytest.mark.parametrize("samples", [[], [1.0, math.nan], [0.0, 1.0]])
    def test_bad_samples(self, samples: list[float]) -> None:
        with pytest.raises(ValueError, match="must be positive and finite"):
            InputNorms.from_samples(samples)
