"""Chains whose thresholds are relative to a sample's own size, on the kernels: what only they have."""

import copy

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
from hush.sparse import accelerate, act_conv2d, act_linear, engine_calls, step
from hush.sparse.activation import activation_of
from hush.sparse.cpu import CpuBackend

from .conftest import RELATIVE, assert_near
from .test_functional import check, layers


@pytest.fixture(params=RELATIVE.values(), ids=RELATIVE.keys())
def relative(request):
    return request.param


def relative_mlp(act, width=20, depth=3):
    pairs = [m for _ in range(depth) for m in (act(), nn.Linear(width, width))]
    return nn.Sequential(nn.Linear(12, width), *pairs, act(), nn.Linear(width, 5))


def test_a_sample_of_zeros_gives_zeros_and_no_gradient(relative):
    h = torch.randn(3, 8)
    h[1] = 0.0
    h.requires_grad_()
    out = act_linear(h, torch.randn(4, 8), None, relative)
    assert torch.equal(out[1], torch.zeros(4))
    out.sum().backward()
    assert torch.equal(h.grad[1], torch.zeros(8))
    assert h.grad[0].abs().sum() > 0


def test_the_size_of_a_sample_does_not_matter(relative):
    """φ(c h) = c φ(h) for c > 0."""
    h, w = torch.randn(6, 30), torch.randn(4, 30)
    assert_near(act_linear(64.0 * h, w, None, relative), 64.0 * act_linear(h, w, None, relative))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_without_samples(relative, threads):
    torch.set_num_threads(threads)
    weights, biases = layers([40, 40, 40, 7])
    check(torch.randn(0, 40), weights, biases, [relative] * 3)


def test_ordinary_layers_beside_relative_ones(relative):
    weights, biases = layers([40, 40, 40, 40, 40])
    plain = hush.sparse.Activation.crelu(0.5, 0.8)
    for phis in ([relative, plain, relative, plain], [plain, relative, relative, plain]):
        check(torch.randn(1, 40) + 0.1 * torch.randn(33, 40), weights, biases, phis)
        check(torch.randn(9, 40), weights, biases, phis)


@pytest.mark.parametrize("act", [lambda: hn.RelativeReLU(0.6), lambda: hn.RelativeCST(0.5, 0.7)])
@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, lr=0.05), lambda p: torch.optim.AdamW(p, lr=1e-3)])
@pytest.mark.parametrize("centred", [False, True])
def test_steps_follow_torch(act, make, centred):
    plain = relative_mlp(act)
    fast = copy.deepcopy(plain)
    theirs, ours = make(plain.parameters()), make(fast.parameters())
    if centred:
        hush.center_gradients(plain)
        hush.center_gradients(fast)
    accelerate(fast, optimizer=ours)
    before = engine_calls()
    for _ in range(4):
        x = torch.randn(16, 12)
        plain(x).square().mean().backward()
        theirs.step()
        theirs.zero_grad()
        step(fast, fast(x).square().mean())
    assert engine_calls() > before
    for p, q in zip(plain.parameters(), fast.parameters(), strict=True):
        assert_near(q.detach(), p.detach(), 5e-5)


def test_second_derivatives():
    plain = relative_mlp(lambda: hn.RelativeReLU(0.6), width=6, depth=1)
    fast, x = accelerate(copy.deepcopy(plain)), torch.randn(12)
    expected, found = (torch.autograd.functional.hessian(lambda v, m=m: m(v).square().sum(), x) for m in (plain, fast))
    assert expected.abs().max() > 0
    assert_near(found, expected, 1e-4)


def test_units_in_another_dimension_are_left_to_torch():
    for dim in (0, 1, (-1, -2)):
        assert activation_of(hn.RelativeReLU(0.5, dim=dim), relative=True) is None
    plain = nn.Sequential(hn.RelativeReLU(0.5, dim=1), nn.Linear(6, 3))
    fast, x = accelerate(copy.deepcopy(plain)), torch.randn(4, 5, 6)
    assert_near(fast(x), plain(x))


def test_layers_that_do_not_fit_l2_are_left_to_torch():
    assert CpuBackend().takes_relative([torch.empty(300, 300)])
    assert not CpuBackend().takes_relative([torch.empty(300, 300), torch.empty(1024, 1024)])
    plain = nn.Sequential(hn.RelativeReLU(0.5), nn.Linear(400, 400))
    fast, x = accelerate(copy.deepcopy(plain)), torch.randn(4, 400)
    assert_near(fast(x), plain(x))


def test_whoever_knows_no_relative_activation_says_so():
    phi = RELATIVE["relative_relu"]
    with pytest.raises(ValueError, match="relative to a sample's own size, which convolutions do not take"):
        act_conv2d(torch.randn(1, 3, 4, 4), torch.randn(2, 3, 3, 3), None, phi)
    with pytest.raises(ValueError, match="Only one-sided and odd activations can be relative, not JUMP"):
        hush.sparse.Activation(hush.sparse.Activation.fatrelu(0.1).kind, 0.1, relative=True)


def test_the_report_counts_them_as_fused():
    model = accelerate(relative_mlp(lambda: hn.RelativeReLU(0.6)))
    found = hush.sparse.report(model)
    assert sum(len(names) for names in found.taken) == 4
    assert not found.left
    apart = hush.sparse.report(accelerate(nn.Sequential(nn.Linear(4, 4), hn.RelativeReLU(0.6, dim=0), nn.Linear(4, 4))))
    assert "relative thresholds run on the engine in chains alone" in str(apart)
