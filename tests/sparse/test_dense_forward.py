"""The dense forward of a Linear that leaves out zeros in its backward alone."""

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hush.nn as hn
from hush.sparse import accelerate, crossover, dense_forward

from .conftest import assert_near, only_by_gradient

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture
def onednn(monkeypatch):
    """As if it had been measured that oneDNN is the faster; the shapes it was called for."""
    calls, real = [], dense_forward._by_onednn

    def counted(x, weight, bias):
        calls.append(tuple(x.shape))
        return real(x, weight, bias)

    monkeypatch.setattr(dense_forward, "_by_onednn", counted)
    monkeypatch.setattr(dense_forward, "_faster", {(96, 32, torch.get_num_threads()): True})
    monkeypatch.setattr(dense_forward, "ensure_measured", lambda weights: None)
    return calls


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_both_libraries_give_the_product(bias, onednn):
    x, weight, b = torch.randn(70, 32), torch.randn(96, 32), torch.randn(96) if bias else None
    exact = F.linear(x.double(), weight.double(), None if b is None else b.double())
    assert_near(dense_forward.dense_linear(x, weight, b), exact, 1e-6)
    assert onednn == [(70, 32)]


def test_what_was_not_measured_is_torchs_own(onednn):
    x, weight = torch.randn(70, 32), torch.randn(96, 32)
    turned = weight.t().contiguous().t()
    for y, w in ((x[:63], weight), (torch.randn(32, 70).t(), weight), (x, turned), (x, weight[1:])):
        assert torch.equal(dense_forward.dense_linear(y, w, None), F.linear(y, w))
    torch._C._set_mkldnn_enabled(False)  # as torch.backends.mkldnn.flags does, which warns besides
    try:
        assert torch.equal(dense_forward.dense_linear(x, weight, None), F.linear(x, weight))
    finally:
        torch._C._set_mkldnn_enabled(True)
    assert onednn == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity(bad, onednn):
    x, weight = torch.randn(70, 32), torch.randn(96, 32)
    x[3, 4] = bad
    expected, actual = F.linear(x, weight), dense_forward.dense_linear(x, weight, None)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.isinf(), expected.isinf())
    assert onednn


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_block_asks_no_clock_where_none_may_decide(adaptive, onednn, monkeypatch):
    monkeypatch.setattr(crossover, "limit", only_by_gradient)
    monkeypatch.setattr(crossover, "ensure_measured", lambda *a, **k: None)
    plain = nn.Sequential(nn.Linear(32, 96), hn.CReLU(0.3, 0.8), nn.Linear(96, 8))
    fast = accelerate(copy.deepcopy(plain), adaptive=adaptive)
    monkeypatch.setattr(crossover, "fixed_limit", lambda: 0.6)
    x = torch.randn(70, 32)
    for model in (plain, fast):
        model(x).square().sum().backward()
    assert_near(fast[0].weight.grad, plain[0].weight.grad, 1e-4)
    assert onednn == ([(70, 32)] if adaptive else [])


def test_a_measurement_is_taken_once(monkeypatch):
    monkeypatch.delenv("HUSH_CROSSOVER")
    monkeypatch.setattr(dense_forward, "_faster", {})
    monkeypatch.setattr(dense_forward, "_FLOPS", 1e5)
    measured = []
    real = dense_forward._measure
    monkeypatch.setattr(dense_forward, "_measure", lambda o, i: measured.append((o, i)) or real(o, i))
    weights = [torch.randn(96, 32), torch.randn(96, 32), torch.randn(64, 32), torch.randn(9, 9, 3), torch.randn(0, 4)]
    for _ in range(2):
        dense_forward.ensure_measured(weights)
    assert measured == [(96, 32), (64, 32)]
    assert set(dense_forward._faster) == {(96, 32, torch.get_num_threads()), (64, 32, torch.get_num_threads())}
