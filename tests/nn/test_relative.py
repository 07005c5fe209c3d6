"""The modules against plain arithmetic, finite differences, and the theory of wide random networks."""

import math

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
from hush.nn import phi_of, relative
from hush.theory import edge_of_chaos

MODULES = {
    "relu": lambda **o: hn.RelativeReLU(1.0364, **o),
    "crelu": lambda **o: hn.RelativeCReLU(1.0364, 1.2, **o),
    "soft_threshold": lambda **o: hn.RelativeSoftThreshold(1.44, **o),
    "cst": lambda **o: hn.RelativeCST(1.44, 0.9, **o),
}


def _by_hand(name, x, dim=-1):
    """In float64, entry by entry."""
    x = x.double()
    s = x.square().mean(dim, keepdim=True).sqrt()
    module = MODULES[name]()
    clip = getattr(module, "clip", math.inf)
    if name in ("relu", "crelu"):
        return (x - module.threshold * s).clamp(min=0.0).minimum(clip * s)
    return x.sign() * (x.abs() - module.threshold * s).clamp(min=0.0).minimum(clip * s)


@pytest.mark.parametrize("dim", [-1, 1, (1, 2)])
@pytest.mark.parametrize("name", MODULES)
def test_values(name, dim):
    x = 3.0 * torch.randn(4, 6, 50, generator=torch.Generator().manual_seed(0))
    y = MODULES[name](dim=dim)(x)
    torch.testing.assert_close(y.double(), _by_hand(name, x, dim), rtol=1e-5, atol=1e-6)
    assert torch.equal(y == 0.0, _by_hand(name, x, dim) == 0.0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("name", MODULES)
def test_the_share_of_zeros_does_not_know_the_scale(name, scale):
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
    module = MODULES[name]()
    y = module(scale * x)
    share = float((y == 0).double().mean())
    assert share == pytest.approx(0.85, abs=0.01)
    torch.testing.assert_close(y / scale, module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODULES)
def test_gradients_through_the_scale(name):
    x = torch.randn(3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(MODULES[name](), (x,))


@pytest.mark.parametrize("name", MODULES)
def test_gradients_with_the_scale_taken_for_a_constant(name):
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(1), requires_grad=True)
    module = MODULES[name](through_scale=False)
    y = module(x)
    y.sum().backward()
    s = x.detach().square().mean(-1, keepdim=True).sqrt()
    between = (y != 0) & (y.abs() < getattr(module, "clip", math.inf) * s * (1 - 1e-6))
    assert torch.equal(x.grad, between.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODULES)
def test_zeros_in_zeros_out(name, dtype):
    x = torch.zeros(2, 5, dtype=dtype, requires_grad=True)
    y = MODULES[name]()(x)
    y.sum().backward()
    assert y.dtype == dtype
    assert torch.equal(y, torch.zeros_like(y))
    assert not y.signbit().any()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", MODULES)
def test_known_to_the_registry_and_left_to_torch_by_the_engine(name):
    module = MODULES[name]()
    phi = phi_of(module)
    assert phi.sparsity(7.0) == pytest.approx(0.85, abs=1e-3)
    assert module.entry.relative
    assert module.entry.kernel is None
    model = nn.Sequential(nn.Linear(8, 16), module, nn.Linear(16, 4))
    x = torch.randn(5, 8)
    expected = model(x)
    torch.testing.assert_close(hush.sparse.accelerate(model, adaptive=False)(x), expected)


@pytest.mark.parametrize("through_scale", [True, False])
@pytest.mark.parametrize("name", ["relu", "cst"])
def test_a_wide_random_network_does_what_the_theory_says(name, through_scale):
    width, depth, q_star = 1000, 12, 2.0
    module = MODULES[name](through_scale=through_scale)
    phi = phi_of(module)
    w2, b2 = edge_of_chaos(phi, q_star)
    slope = phi.second_moment(1.0) * w2
    g = torch.Generator().manual_seed(0)
    h = math.sqrt(20.0) * torch.randn(16, width, generator=g)
    h.requires_grad_()
    first, q = h, 20.0
    for layer in range(depth):
        weight = torch.randn(width, width, generator=g) * math.sqrt(w2 / width)
        h = module(h) @ weight.T + math.sqrt(b2) * torch.randn(width, generator=g)
        q = q_star + slope * (q - q_star)
        # Deviations of one layer's mean square are about √(w2·E[ψ⁴]/N); those of the biases √(2/N).
        assert float(h.detach().square().mean()) == pytest.approx(q, rel=0.2), layer
        # Deep down all inputs look alike, so that 1,000 units are the sample.
        assert float((module(h) == 0).double().mean()) == pytest.approx(0.85, abs=0.04)
    out = torch.randn(16, width, generator=g)
    (gradient,) = torch.autograd.grad(h, first, out)
    # χ₁ = 1 at every layer, whatever q is; at this width the gain over 12 layers is good to a factor. Were χ₁ the V′ of
    # this design, 0.46 or less, it would be below 0.01.
    assert 1 / 1.8 < float(gradient.norm() / out.norm()) < 1.8


def test_mistakes():
    with pytest.raises(ValueError, match="threshold must be finite"):
        hn.RelativeReLU(-1.0)
    with pytest.raises(ValueError, match="clip must be positive"):
        hn.RelativeCReLU(1.0, 0.0)
    with pytest.raises(ValueError, match="floating-point"):
        relative.relative_relu(torch.ones(3, dtype=torch.int64), 1.0)
    assert repr(hn.RelativeCReLU(1.0, 2.0, through_scale=False)) == (
        "RelativeCReLU(clip=2, threshold=1, dim=-1, through_scale=False)"
    )
