"""The gradient at an intermediate tensor is the dense one, whichever way somebody looks at it.

Where a Linear reads the output of an activation, nobody but an onlooker needs the gradient at its zeros: these tests
are the onlookers torch knows.
"""

import pytest
import torch
from torch import nn

from .alike import engine_runs, twins
from .conftest import assert_near


class Net(nn.Module):
    """`onlooker` is given the activation's output and keeps what it likes."""

    def __init__(self):
        super().__init__()
        self.a, self.act, self.b, self.onlooker = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), None

    def forward(self, x):
        h = self.act(self.a(x))
        if self.onlooker is not None:
            self.onlooker(h)
        return self.b(h)


def _asked_for(keep):
    def look(model, x):
        kept = []
        model.onlooker = lambda h: kept.append(keep(h))
        loss = model(x).square().sum()
        return torch.autograd.grad(loss, kept)

    return look


def _told(register):
    def look(model, x):
        seen = []
        model.onlooker = lambda h: register(h, lambda g: seen.append(g.clone()))
        model(x).square().sum().backward()
        return seen

    return look


def _kept(model, x):
    kept = []
    model.onlooker = lambda h: (h.retain_grad(), kept.append(h))
    model(x).square().sum().backward()
    return [h.grad for h in kept]


def _saved_by_its_node(model, x):
    kept = []
    model.onlooker = lambda h: kept.append(h.grad_fn)
    loss = model(x).square().sum()
    return torch.autograd.grad(loss, [node._saved_result for node in kept])


def _by_a_module_hook(model, x):
    seen = []
    handle = model.act.register_full_backward_hook(lambda m, i, o: seen.append(o[0].clone()))
    model(x).square().sum().backward()
    handle.remove()
    return seen


ONLOOKERS = {
    "holds it": _asked_for(lambda h: h),
    "retain_grad": _kept,
    "tensor hook": _told(lambda h, see: h.register_hook(see)),
    "multi-grad hook": _told(lambda h, see: torch.autograd.graph.register_multi_grad_hook([h], lambda g: see(g[0]))),
    "hook before its node": _told(lambda h, see: h.grad_fn.register_prehook(lambda g: see(g[0]))),
    "gradient edge": _asked_for(torch.autograd.graph.get_gradient_edge),
    "saved by its node": _saved_by_its_node,
    "module hook": _by_a_module_hook,
}


@pytest.mark.parametrize("look", ONLOOKERS.values(), ids=ONLOOKERS.keys())
def test_an_onlooker_sees_the_dense_gradient(look):
    plain, fast = twins(Net())
    x = torch.randn(9, 8)
    with engine_runs():
        fast(x).sum().backward()
    expected, actual = look(plain, x), look(fast, x)
    assert len(actual) == len(expected) == 1
    assert (plain.act(plain.a(x)) == 0).any()
    assert_near(actual[0], expected[0], 1e-4)


@pytest.mark.parametrize("fused", [True, False], ids=["in a Sequential", "apart"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_nan_reaches_the_input(bad, fused):
    class Bad(Net):
        def __init__(self):
            super().__init__()
            self.pair = nn.Sequential(self.act, self.b)

        def forward(self, x):
            return self.pair(self.a(x)) if fused else self.b(self.act(self.a(x)))

    plain, fast = twins(Bad())
    x, results = torch.randn(9, 8), []
    x[1, 1] = bad
    for model in (plain, fast):
        y = x.clone().requires_grad_()
        model(y).square().sum().backward()
        results.append((y.grad, model.a.weight.grad, model.a.bias.grad))
    for e, a in zip(*results, strict=True):
        assert torch.equal(a.isnan(), e.isnan())
