"""Quantiles from leading bits, beside those of the sorted values."""

import math

import pytest
import torch
from torch import Tensor

from hush.nn.sparsifying.bit_histogram import BitHistogram


def filled(*portions: Tensor) -> BitHistogram:
    histogram = BitHistogram()
    for portion in portions:
        histogram.add(portion)
    return histogram


def zeros(values: Tensor, threshold: float) -> float:
    """The share that a threshold in the values' own dtype silences."""
    return float((values.abs() <= torch.tensor(threshold).to(values.dtype)).double().mean())


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1.0, 1e10])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999])
def test_the_quantile_of_many_values(scale: float, share: float, generator: torch.Generator) -> None:
    values = scale * torch.randn(200_000, generator=generator)
    threshold = filled(*values.split(33_333)).threshold_for(share)
    exact = float(values.abs().kthvalue(round(share * len(values))).values)
    assert threshold == pytest.approx(exact, rel=2**-10 + 1e-6)
    assert zeros(values, threshold) == pytest.approx(share, abs=0.0005)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_counted_exactly(dtype: torch.dtype, generator: torch.Generator) -> None:
    values = torch.randn(20_000, generator=generator).to(dtype)
    histogram = filled(values)
    threshold = histogram.threshold_for(0.9)
    assert zeros(values, threshold) == histogram.share_up_to(threshold)
    # No other value of the layer comes nearer.
    nearest = min(abs(zeros(values, float(v)) - 0.9) for v in values.abs().unique())
    assert abs(zeros(values, threshold) - 0.9) == nearest


def test_zeros_of_relu_that_are_enough_need_no_threshold(generator: torch.Generator) -> None:
    values = torch.randn(10_000, generator=generator).relu()
    assert filled(values).threshold_for(0.3) == 0.0
    assert filled(values).threshold_for(0.3, lowest=0.7) == 0.7


def test_ties_go_to_the_nearer_side() -> None:
    values = torch.tensor([1.0] * 60 + [2.0] * 35 + [3.0] * 5)
    threshold = filled(values).threshold_for(0.9)
    assert 2.0 <= threshold < 3.0
    assert 1.0 <= filled(values).threshold_for(0.7) < 2.0
    assert filled(values).threshold_for(0.2) == 0.0  # 0 is nearer than 0.6


@pytest.mark.parametrize("value", [0.0, 2.5])
def test_a_constant_is_never_silenced(value: float) -> None:
    assert filled(torch.full((50,), value)).threshold_for(0.9) == 0.0


def test_never_all_values() -> None:
    assert 1.0 <= filled(torch.tensor([1.0, 1.0, 1.0, 2.0])).threshold_for(0.999) < 2.0


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_seen(value: float) -> None:
    assert not filled(torch.ones(3), torch.tensor([1.0, value])).is_finite()
    assert filled(torch.tensor([torch.finfo(torch.float32).max])).is_finite()


def test_nothing() -> None:
    assert BitHistogram().total == 0
    assert BitHistogram().threshold_for(0.9) == 0.0
    assert math.isnan(BitHistogram().share_up_to(1.0))
