"""Gradients seen from everywhere a user can look: at the ends, between the modules, and twice."""

import copy
import gc

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hush.nn as hn
from hush.sparse import accelerate, engine_calls
from hush.sparse.cpu import CpuProgram

from .conftest import assert_near

ACTIVATIONS = [
    F.relu,
    torch.relu,
    nn.ReLU(),
    hn.CReLU(0.1, 0.9),
    hn.CST(0.1, 0.9),
    hn.SoftThreshold(0.1),
    hn.FATReLU(0.1),
]


class Net(nn.Module):
    def __init__(self, act, look=lambda x: None, look_after=lambda x: None):
        super().__init__()
        self.l1, self.l2, self.act = nn.Linear(8, 20), nn.Linear(20, 3), act
        self.look, self.look_after = look, look_after

    def forward(self, x):
        x = self.act(self.l1(x))
        self.look(x)
        out = self.l2(x)
        self.look_after(x)
        return out


@pytest.fixture
def masked(monkeypatch):
    """For each backward of a kernel: whether it computed ∂L/∂x, at the active units only."""
    seen, real = [], CpuProgram.backward

    def spy(self, grad, saved, want_h, plan):
        seen.append(want_h)
        return real(self, grad, saved, want_h, plan)

    monkeypatch.setattr(CpuProgram, "backward", spy)
    return seen


@pytest.mark.parametrize(
    "act", ACTIVATIONS, ids=lambda act: getattr(act, "__name__", repr(act)) + str(type(act).__name__)
)
def test_the_gradient_at_zeros_is_left_out_where_nobody_sees_it(act, masked):
    plain = Net(act)
    fast, x = accelerate(copy.deepcopy(plain)), torch.randn(5, 8)
    for net in (plain, fast):
        net(x).square().sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad)
    assert masked[0]  # the first backward is l2's


LOOKS = {
    "held": lambda kept: lambda x: kept.append(x),
    "retained": lambda kept: lambda x: (x.retain_grad(), kept.append(x)),
    "hooked": lambda kept: lambda x: x.register_hook(lambda g: kept.append(g)) and None,
}


@pytest.mark.parametrize("when", ["look", "look_after"])
@pytest.mark.parametrize("how", LOOKS)
def test_all_of_it_is_there_for_whoever_looks(how, when, masked):
    results = []
    plain = Net(nn.ReLU())
    for net in (plain, accelerate(copy.deepcopy(plain))):
        kept = []
        setattr(net, when, LOOKS[how](kept))
        loss = net(torch.linspace(-1, 1, 40).view(5, 8)).square().sum()
        gc.collect()
        if how == "held":
            (grad,) = torch.autograd.grad(loss, kept)
        else:
            loss.backward()
            grad = kept[0].grad if how == "retained" else kept[0]
        results.append(grad)
    assert_near(results[1], results[0])
    assert (results[0] != 0).all()  # dense: also where relu is 0
    assert not masked[0]


@pytest.mark.parametrize("act", [nn.Tanh(), nn.Dropout(0.5), nn.LeakyReLU(), nn.GELU()], ids=repr)
def test_behind_any_other_function_all_of_it_is_computed(act, masked):
    plain = Net(act)
    fast, x = accelerate(copy.deepcopy(plain)), torch.randn(5, 8)
    for net in (plain, fast):
        torch.manual_seed(3)
        net(x).square().sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad)
    assert not masked[0]


def test_an_input_changed_in_place_is_refused_as_torch_does():
    for net in (Net(nn.ReLU()), accelerate(Net(nn.ReLU()))):
        net.look_after = lambda x: x.add_(1)
        loss = net(torch.randn(5, 8)).sum()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("frozen", [True, False])
def test_an_input_that_torch_does_not_keep_may_change(frozen):
    """F.linear keeps its input for the gradient of its weight alone."""
    calls = engine_calls()
    for net in (nn.Linear(8, 3), accelerate(nn.Linear(8, 3), adaptive=False)):
        net.weight.requires_grad_(not frozen)
        x = torch.relu(torch.randn(5, 8) - 1)
        loss = net(x).sum()
        x.add_(1)
        if frozen:
            loss.backward()
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
    assert engine_calls() > calls


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("learning", [0, 1, None])
def test_a_weight_may_change_where_torch_does_not_keep_it(layer, learning):
    """Of a weight F.linear keeps a record only on the way to something in front of it that learns."""
    torch.manual_seed(0)
    plain = nn.Sequential(*(m for _ in range(3) for m in (nn.ReLU(), nn.Linear(8, 8))))
    fast, x, found = accelerate(copy.deepcopy(plain), adaptive=False), torch.randn(5, 8), []
    for net in (plain, fast):
        linears = net[1::2]
        for number, m in enumerate(linears):
            m.requires_grad_(learning in (None, number))
        out = net(x.requires_grad_(learning is None)).sum()
        with torch.no_grad():
            linears[layer].weight.mul_(2.0)
        try:
            out.backward()
        except RuntimeError as error:
            found.append(("modified by an inplace operation" in str(error), []))
        else:
            found.append((False, [m.weight.grad for m in linears]))
    assert found[0][0] == found[1][0]
    for e, a in zip(found[0][1], found[1][1], strict=True):
        assert (e is None) == (a is None)
        if e is not None:
            assert_near(a, e)


def smooth(net):
    """A loss with a second derivative everywhere."""
    return lambda x: net(x).tanh().square().sum()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("act", [nn.ReLU(), hn.CReLU(0.1, 0.9), hn.CST(0.1, 0.9), hn.FATReLU(0.1)], ids=repr)
def test_second_derivatives(act, fused):
    torch.manual_seed(1)
    layers = (nn.Linear(6, 12), act, nn.Linear(12, 12), copy.deepcopy(act), nn.Linear(12, 2))
    plain = (nn.Sequential(*layers) if fused else nn.Sequential(*(nn.Sequential(m) for m in layers))).requires_grad_()
    fast, x, calls = accelerate(copy.deepcopy(plain)), torch.randn(3, 6), engine_calls()
    hessians = [torch.autograd.functional.hessian(smooth(net), x) for net in (plain, fast)]
    assert hessians[0].abs().max() > 0
    assert_near(hessians[1], hessians[0], 1e-4)
    assert engine_calls() > calls
    for net in (plain, fast):  # a gradient penalty: the derivative of a gradient's norm in every parameter
        y = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(smooth(net)(y), y, create_graph=True)
        g.square().sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad, 1e-4)


def test_third_derivative():
    plain = nn.Sequential(nn.ReLU(), nn.Linear(6, 2))
    fast, x = accelerate(copy.deepcopy(plain)), torch.randn(3, 6)
    found = []
    for net in (plain, fast):
        y = x.clone().requires_grad_()
        value = smooth(net)(y)
        for _ in range(3):
            (g,) = torch.autograd.grad(value, y, create_graph=True)
            value = g.sum()
        found.append(g)
    assert found[0].abs().max() > 0
    assert_near(found[1], found[0], 1e-4)


def test_checkpointing_meets_the_same_decision_twice(monkeypatch):
    from hush.sparse import crossover

    monkeypatch.delenv("HUSH_CROSSOVER")
    monkeypatch.setattr(crossover, "ensure_measured", lambda *a, **k: None)
    monkeypatch.setattr(crossover, "limit", lambda *a: 0.3)
    plain = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2))
    fast, x = accelerate(copy.deepcopy(plain)), torch.randn(8, 6)
    for net in (plain, fast):
        for shift in (0.0, 3.0, -3.0, 0.0):  # sparse and dense by turns
            with torch.no_grad():
                net[0].bias.fill_(shift)
            torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).square().sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad)
