"""What is not an ordinary batch of float32: right, or one clear sentence."""

import copy

import pytest
import torch
from torch import nn

import hush.nn as hn
from hush.sparse import Activation, accelerate, act_linear, activation_of

from .conftest import assert_near

MODULES = [
    nn.ReLU(),
    hn.ShiftedReLU(0.3),
    hn.CReLU(0.3, 0.8),
    hn.CReLU(0.3, float("inf")),
    hn.SoftThreshold(0.3),
    hn.CST(0.3, 0.8),
    hn.FATReLU(0.3),
    nn.Softshrink(0.3),
    nn.ReLU6(),
    nn.Hardtanh(0.0, 0.8),
    nn.Threshold(0.3, 0.0),
]


@pytest.mark.parametrize("module", MODULES, ids=repr)
def test_value_and_slope_are_the_modules_everywhere(module):
    """NaN, ±∞, both sides of every kink and the kinks themselves; the engine and its dense twin."""
    points = [float("nan"), float("inf"), -float("inf"), 0.3, -0.3, 1.1, -1.1, 0.9, -0.9, 2.0, -2.0, 0.0, -0.0, 1e-40]
    results = []
    phi = activation_of(module)
    identity = torch.eye(1)
    for f in (module, phi, lambda x: act_linear(x.unsqueeze(1), identity, None, phi).squeeze(1)):
        x = torch.tensor(points).repeat_interleave(64).requires_grad_()  # enough for torch's vectorised loops
        y = f(x)
        y.backward(torch.full_like(y, 3.0))
        results.append((y.detach(), x.grad))
    for value, slope in results[1:]:
        torch.testing.assert_close(value, results[0][0], rtol=0, atol=1e-7, equal_nan=True)
        assert torch.equal(slope, results[0][1])


def test_what_is_never_silent_is_left_to_torch():
    for module in (nn.Hardtanh(-0.8, 0.8), hn.CST(0.0, 0.8), hn.SoftThreshold(0.0), nn.LeakyReLU(), nn.GELU()):
        assert activation_of(module) is None


@pytest.mark.parametrize("module", MODULES, ids=repr)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_inf_through_a_model(module, bad):
    plain = nn.Sequential(*[m for _ in range(3) for m in (copy.deepcopy(module), nn.Linear(20, 20))])
    with torch.no_grad():
        for p in plain.parameters():
            p.abs_()
    fast = accelerate(copy.deepcopy(plain))
    x = torch.randn(4, 20)
    x[1, 3] = bad
    assert_near(fast(x), plain(x))
    for net in (plain, fast):
        net(x).sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        if e.grad.isfinite().all():
            assert_near(a.grad, e.grad)
    # Where 0 · NaN makes a dense gradient NaN, the engine leaves out the zero; the NaN is still seen in the step.
    bad_plain = any(not p.grad.isfinite().all() for p in plain.parameters())
    assert bad_plain == any(not p.grad.isfinite().all() for p in fast.parameters())


@pytest.mark.parametrize("shape", [(0, 20), (3, 0, 20), (2, 3, 20), (20,)])
def test_shapes_of_a_model_input(shape):
    plain = nn.Sequential(nn.ReLU(), nn.Linear(20, 7), nn.ReLU(), nn.Linear(7, 3))
    fast = accelerate(copy.deepcopy(plain))
    x = torch.randn(shape)
    assert_near(fast(x), plain(x))
    for net in (plain, fast):
        net(x).sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad)


def test_strided_expanded_and_transposed_inputs():
    plain = nn.Sequential(nn.ReLU(), nn.Linear(20, 7))
    fast = accelerate(copy.deepcopy(plain))
    big = torch.randn(40, 40)
    for x in (big[::2, ::2], big[:20, 5:25], big[:20].t()[:9, :20], torch.randn(1, 20).expand(6, 20)):
        assert_near(fast(x), plain(x))
        with torch.no_grad():
            assert_near(fast(x), plain(x))


def test_part_of_a_model_requires_gradients():
    plain = nn.Sequential(nn.ReLU(), nn.Linear(20, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 4))
    plain[1].requires_grad_(False)
    plain[3].bias.requires_grad_(False)
    fast = accelerate(copy.deepcopy(plain))
    x = torch.randn(5, 20)
    for net in (plain, fast):
        net(x).square().sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert (a.grad is None) == (e.grad is None)
        if e.grad is not None:
            assert_near(a.grad, e.grad)


def test_wrong_inputs_say_what_torch_says():
    plain = nn.Sequential(nn.ReLU(), nn.Linear(20, 7))
    fast = accelerate(copy.deepcopy(plain))
    for x in (torch.randn(4, 19), torch.randn(4, 20).double(), torch.randn(4, 20).half(), torch.tensor(1.0)):
        with pytest.raises(RuntimeError) as ours:
            fast(x)
        with pytest.raises(RuntimeError) as theirs:
            plain(x)
        assert str(ours.value) == str(theirs.value)


def test_bf16_model_is_torchs_own():
    plain = nn.Sequential(hn.CReLU(0.3, 0.8), nn.Linear(20, 7)).bfloat16()
    x = torch.randn(4, 20).bfloat16()
    assert torch.equal(accelerate(copy.deepcopy(plain))(x), plain(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_saturated_units_are_silent_in_half_precision(dtype):
    x = torch.full((1, 3), 5.0, dtype=dtype, requires_grad=True)
    act_linear(x, torch.eye(3, dtype=dtype), None, Activation.crelu(0.3, 0.8)).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0, 0.0]]
