"""τ from a sparsity against the paper's closed forms."""

import math

import pytest
from scipy.special import erfinv
from scipy.stats import norm

from hush.theory import (
    activation,
    threshold_from_sparsity,
)

SPARSITIES = [0.5, 0.6, 0.85, 0.99]


class TestThreshold:
    @pytest.mark.parametrize("s", SPARSITIES)
    @pytest.mark.parametrize("q", [0.3, 1.0, 5.0])
    def test_paper_appendix_f(self, s: float, q: float) -> None:
        assert threshold_from_sparsity("crelu", s, q) == pytest.approx(math.sqrt(q) * norm.ppf(s), abs=1e-15)
        assert threshold_from_sparsity("cst", s, q) == pytest.approx(math.sqrt(2 * q) * erfinv(s))

    @pytest.mark.parametrize("name", ["shifted_relu", "soft_threshold"])
    def test_it_gives_the_sparsity_asked_for(self, name: str) -> None:
        for s in (0.5, 0.9, 1 - 1e-9):
            assert activation(name, threshold_from_sparsity(name, s, 2.0)).sparsity(2.0) == pytest.approx(s)

    @pytest.mark.parametrize(("name", "s"), [("crelu", 0.49), ("crelu", 1.0), ("cst", -0.1), ("cst", math.nan)])
    def test_out_of_range(self, name: str, s: float) -> None:
        with pytest.raises(ValueError, match=rf"the sparsity of {name} lies in .*, got {s}"):
            threshold_from_sparsity(name, s)
