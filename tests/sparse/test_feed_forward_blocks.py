"""Whole models with feed-forward blocks: where zeros pay, every product but the first Linear's forward is sparse."""

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
from hush.sparse import crossover, engine_calls, lone_linear, sight

from .alike import assert_alike, assert_same_gradients, twins
from .conftest import assert_near


@pytest.fixture(autouse=True)
def _one_thread(_two_threads):
    """The kernels' threads are tested with the products; two that wait for one another take seconds."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _measured(monkeypatch):
    """As if it had been measured that zeros pay up to a density of 0.7, for matrices of any size."""
    monkeypatch.delenv("HUSH_CROSSOVER")
    monkeypatch.setattr(lone_linear, "_LEAST_WORK", 1)
    monkeypatch.setattr(crossover, "ensure_measured", lambda *a, **k: None)
    monkeypatch.setattr(crossover, "limit", lambda *a, by_gradient=False: 0.7)


@pytest.fixture
def free(monkeypatch):
    """What was said, call by call, of whether anybody sees the gradient at the zeros of what a Linear reads."""
    answers, real = [], sight.Sight.is_free
    monkeypatch.setattr(sight.Sight, "is_free", lambda self: answers.append(real(self)) or answers[-1])
    return answers


def gpt(gated):
    torch.manual_seed(0)
    return hn.gpt(lambda: hn.CReLU(0.8, 0.8), layers=2, width=32, heads=2, hidden=64, context=16, gated=gated)


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_a_byte_transformer(gated, products, free):
    plain, fast = twins(gpt(gated))
    ids = torch.randint(256, (2, 16))
    kernels = engine_calls()
    for model in (plain, fast):
        model.zero_grad()
        model(ids).square().mean().backward()
    assert_same_gradients(plain, fast)
    assert products == [(True, True)] * (4 if gated else 2)
    # The second Linear of each block gives the gradient at active units only; where nothing is multiplied with what the
    # activation gives, the two run as one.
    assert free == ([True] * 2 if gated else [])
    listed = 2 if gated else 0  # the active units at which `up` is computed
    assert engine_calls() == kernels + len(products) + 2 + listed


def test_a_byte_transformer_whose_thresholds_are_held(products):
    plain, fast = twins(gpt(False))
    optimizers = []
    for model in (plain, fast):
        hush.hold(model, sparsity=0.9)
        optimizers.append(torch.optim.SGD(model.parameters(), 0.1))
    ids = torch.randint(256, (2, 16))
    for _ in range(4):
        for model, optimizer in zip((plain, fast), optimizers, strict=True):
            optimizer.zero_grad()
            model(ids).square().mean().backward()
            optimizer.step()
    expected, actual = ([m.threshold for m in model.modules() if type(m) is hn.CReLU] for model in (plain, fast))
    assert len(expected) == 2
    assert expected[0] != pytest.approx(0.8)  # it has moved
    assert actual == pytest.approx(expected, rel=1e-4)
    assert_same_gradients(plain, fast)
    assert len(products) == 8


@pytest.mark.parametrize("norm", ["rms", "layer", None])
def test_few_residual_blocks_of_two_matrices_go_module_by_module_on_several_threads(norm, products):
    torch.set_num_threads(2)
    model = hn.residual_mlp(12, 5, lambda: hn.CST(1.2, 0.8), blocks=3, width=24, hidden=48, norm=norm)
    assert_alike(*twins(model), torch.randn(9, 12))
    assert len(products) >= 3


class Gated(nn.Module):
    """`onlooker` is given both, φ(g) and φ(g) · u, and keeps what it likes."""

    def __init__(self, act=None, swapped=False):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 3)
        self.act, self.swapped, self.onlooker = act or hn.CReLU(0.5, 0.6), swapped, None

    def forward(self, x):
        a, u = self.act(self.gate(x)), self.up(x)
        p = u * a if self.swapped else a * u
        if self.onlooker is not None:
            self.onlooker(a, p)
        return self.down(p)


@pytest.mark.parametrize("swapped", [False, True], ids=["φ u", "u φ"])
@pytest.mark.parametrize("make", [nn.ReLU, lambda: hn.CReLU(0.5, 0.6), lambda: hn.FATReLU(0.4), lambda: hn.CST(0.5, 1)])
def test_a_gated_block(make, swapped, free):
    plain, fast = twins(Gated(make(), swapped))
    assert_alike(plain, fast, torch.randn(4, 9, 8) - 0.5)
    assert free == [True]


def test_zeros_of_the_other_factor_need_their_gradient(free):
    for zero in ("some", "all"):
        plain, fast = twins(Gated())
        with torch.no_grad():
            for model in (plain, fast):
                model.up.weight[: 5 if zero == "some" else None] = 0.0
                model.up.bias[: 5 if zero == "some" else None] = 0.0
        assert_alike(plain, fast, torch.randn(9, 8))
        assert fast.up.weight.grad[:5].abs().max() > 0
    assert free == []


def test_the_other_factor_without_a_gradient():
    plain, fast = twins(Gated())
    for model in (plain, fast):
        model.up.requires_grad_(False)
    for model in (plain, fast):
        model(torch.ones(9, 8)).square().sum().backward()
    assert_same_gradients(plain, fast)


def _asked_for(keep):
    def look(model, x):
        kept = []
        model.onlooker = lambda a, p: kept.append(keep(a, p))
        loss = model(x).square().sum()
        return torch.autograd.grad(loss, kept)

    return look


def _hooked(which):
    def look(model, x):
        seen = []
        model.onlooker = lambda a, p: which(a, p).register_hook(lambda g: seen.append(g.clone()))
        model(x).square().sum().backward()
        return seen

    return look


def _retained(model, x):
    kept = []
    model.onlooker = lambda a, p: (a.retain_grad(), kept.append(a))
    model(x).square().sum().backward()
    return [a.grad for a in kept]


def _by_a_module_hook(model, x):
    seen = []
    handle = model.act.register_full_backward_hook(lambda m, i, o: seen.append(o[0].clone()))
    model.onlooker = None
    model(x).square().sum().backward()
    handle.remove()
    return seen


ONLOOKERS = {
    "holds φ": _asked_for(lambda a, p: a),
    "holds the product": _asked_for(lambda a, p: p),
    "edge of φ": _asked_for(lambda a, p: torch.autograd.graph.get_gradient_edge(a)),
    "edge of the product": _asked_for(lambda a, p: torch.autograd.graph.get_gradient_edge(p)),
    "hook on φ": _hooked(lambda a, p: a),
    "hook on the product": _hooked(lambda a, p: p),
    "retain_grad": _retained,
    "module hook": _by_a_module_hook,
}


@pytest.mark.parametrize("name", ONLOOKERS)
def test_an_onlooker_at_a_gated_block_sees_the_dense_gradient(name, free):
    plain, fast = twins(Gated())
    x = torch.randn(9, 8)
    fast(x).square().sum().backward()
    assert free == [True]
    expected, actual = ONLOOKERS[name](plain, x), ONLOOKERS[name](fast, x)
    assert len(expected) == len(actual) == 1
    assert_near(actual[0], expected[0], 1e-4)
