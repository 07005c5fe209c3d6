"""Centred gradients in the kernels: as the hooks of a plain model give them, whatever the optimizer."""

import copy

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
from hush.sparse import accelerate, step

from .alike import assert_alike, assert_same_gradients, assert_same_parameters, engine_runs, mlp
from .conftest import assert_near
from .test_step import EVERY, square

CST = lambda: hn.CST(0.1, 0.9)  # noqa: E731


def inputs(rows: int = 16) -> torch.Tensor:
    # Far from centred, so that a mean that is not taken out shows.
    return torch.randn(rows, 12, generator=torch.Generator().manual_seed(0)) + 1.0


def twins(model, **options):
    """A plain model in float64, and an accelerated one in float32; both centred."""
    plain, fast = copy.deepcopy(model).double(), copy.deepcopy(model)
    for m in (plain, fast):
        hush.center_gradients(m)
    return plain, accelerate(fast, adaptive=False, **options)


@pytest.mark.parametrize("layout", ["torch", "input_major"])
@pytest.mark.parametrize("make", [lambda: hn.CReLU(0.1, 0.9), CST], ids=["CReLU", "CST"])
@pytest.mark.parametrize("width", [24, 90])
def test_gradients_are_those_of_the_hooks_in_float64(layout, make, width):
    plain, fast = twins(mlp(4, width, make), layout=layout)
    x = inputs(33)
    with engine_runs():
        square(fast, x).backward()
    square(plain, x.double()).backward()
    for (name, e), a in zip(plain.named_parameters(), fast.parameters(), strict=True):
        scale = float(e.grad.abs().max())
        assert (a.grad - e.grad).abs().max() < 2e-5 * scale + 1e-9, name


def test_it_runs_as_one_stretch_and_gives_what_hooks_on_torch_give():
    model = mlp()
    plain, fast = copy.deepcopy(model), copy.deepcopy(model)
    accelerate(fast, adaptive=False)
    for m in (plain, fast):
        hush.center_gradients(m)  # after accelerate
    calls = hush.sparse.engine_calls()
    assert_alike(plain, fast, inputs())
    assert hush.sparse.engine_calls() == calls + 2  # the first Linear alone, and all the rest


@EVERY
@pytest.mark.parametrize("keep_mean", [True, False])
def test_a_fused_step_is_that_of_the_plain_model(make, keep_mean):
    model = mlp()
    plain, fast = copy.deepcopy(model), copy.deepcopy(model)
    theirs, ours = make(plain.parameters()), make(fast.parameters())
    accelerate(fast, optimizer=ours, adaptive=False)
    for m in (plain, fast):
        hush.center_gradients(m, keep_mean=keep_mean)
    x = inputs()
    for _ in range(4):
        square(plain, x).backward()
        theirs.step()
        theirs.zero_grad()
        with engine_runs():
            step(fast, square(fast, x))
        assert_same_parameters(plain, fast)
    # A step that is not fused keeps the mean too.
    for m, optimizer in ((plain, theirs), (fast, ours)):
        square(m, x).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_same_parameters(plain, fast)


def test_a_fused_step_leaves_what_the_mean_input_gives():
    """W and b after the step give the mean input what they gave before it, but for the bias's own step."""
    model = mlp(3, 40)
    hush.center_gradients(model)
    rates = [{"params": [p for n, p in model.named_parameters() if n.endswith(k)], "lr": r} for k, r in RATES]
    optimizer = torch.optim.SGD(rates)
    accelerate(model, optimizer=optimizer, adaptive=False)
    x, linears = inputs(), [m for m in model if isinstance(m, nn.Linear)]
    seen = []
    handles = [m.register_forward_hook(lambda m, a, o: seen.append((a[0].mean(0), o.mean(0)))) for m in linears]
    with torch.no_grad():
        model(x)
    for h in handles:
        h.remove()
    weights = [m.weight.detach().clone() for m in linears]
    step(model, 1e5 * square(model, x))
    for m, weight, (mean, output) in zip(linears, weights, seen, strict=True):
        assert (m.weight - weight).abs().max() > 1e-3
        assert_near(m.weight @ mean + m.bias, output, 1e-3, 1e-4)


RATES = (("weight", 1e-3), ("bias", 0.0))


def test_a_layer_without_bias_is_centred_too():
    model = nn.Sequential(nn.Linear(12, 20), hn.CReLU(0.1, 0.9), nn.Linear(20, 20, bias=False), hn.CReLU(0.1, 0.9))
    model.append(nn.Linear(20, 5, bias=False))
    plain, fast = copy.deepcopy(model), copy.deepcopy(model)
    accelerate(fast, adaptive=False)
    for m in (plain, fast):
        hush.center_gradients(m)
    assert_alike(plain, fast, inputs())


def test_second_derivatives_are_those_of_the_plain_model():
    model = mlp(2)
    plain, fast = copy.deepcopy(model), copy.deepcopy(model)
    accelerate(fast, adaptive=False)
    found = []
    for m in (plain, fast):
        hush.center_gradients(m)
        gradients = torch.autograd.grad(square(m, inputs()), list(m.parameters()), create_graph=True)
        sum(g.square().sum() for g in gradients).backward()
        found.append(gradients)
    for e, a in zip(*found, strict=True):
        assert_near(a.detach(), e.detach(), 1e-4, 1e-6)
    for e, a in zip(plain.parameters(), fast.parameters(), strict=True):
        assert_near(a.grad, e.grad, 1e-3, 1e-5)


def test_eval_mode_removal_and_another_hook_are_noticed():
    model = mlp()
    plain, fast = copy.deepcopy(model), copy.deepcopy(model)
    accelerate(fast, adaptive=False)
    handles = [hush.center_gradients(m) for m in (plain, fast)]
    x = inputs()
    assert_alike(plain, fast, x)
    for m in (plain, fast):
        m.eval()
    assert_alike(plain, fast, x)
    for m in (plain, fast):
        m.train()
    seen = []
    other = fast[2].register_forward_hook(lambda m, a, o: seen.append(1))
    assert_alike(plain, fast, x)
    assert seen, "the other hook was not called"
    other.remove()
    for h in handles:
        h.remove()
    assert_alike(plain, fast, x)
    for m in (plain, fast):
        m.zero_grad()
    untouched = copy.deepcopy(model)
    square(untouched, x).backward()
    square(fast, x).backward()
    assert_same_gradients(untouched, fast)
