"""The modules against plain arithmetic, finite differences, and the theory of wide random networks."""

import math

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
from hush.nn import functional, phi_of
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
def test_known_to_the_registry_and_the_same_on_the_engine(name):
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
        functional.relative_relu(torch.ones(3, dtype=torch.int64), 1.0)
    assert repr(hn.RelativeCReLU(1.0, 2.0, through_scale=False)) == (
        "RelativeCReLU(clip=2, threshold=1, dim=-1, through_scale=False)"
    )


# --- the functions ---

FUNCTIONS = {
    "relu": lambda x, **o: functional.relative_relu(x, 1.0364, **o),
    "crelu": lambda x, **o: functional.relative_crelu(x, 1.0364, 1.2, **o),
    "soft_threshold": lambda x, **o: functional.relative_soft_threshold(x, 1.44, **o),
    "cst": lambda x, **o: functional.relative_cst(x, 1.44, 0.9, **o),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_what_its_module_does(name):
    x = torch.randn(3, 5, 20, generator=torch.Generator().manual_seed(2))
    for options in ({}, {"dim": 1}, {"dim": (1, 2), "through_scale": False}):
        assert torch.equal(FUNCTIONS[name](x, **options), MODULES[name](**options)(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_finite_differences_of_the_functions(name):
    x = torch.randn(3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
    assert torch.autograd.gradcheck(FUNCTIONS[name], (x,))
    # With s taken for a constant: differences of the function whose s stays that of x.
    s = x.detach().square().mean(-1, keepdim=True).sqrt()
    clip = getattr(MODULES[name](), "clip", math.inf)

    def at_fixed_size(h):
        if name in ("relu", "crelu"):
            return (h - 1.0364 * s).clamp(min=0.0).minimum(clip * s)
        return h.sign() * (h.abs() - 1.44 * s).clamp(min=0.0).minimum(clip * s)

    (found,) = torch.autograd.grad(FUNCTIONS[name](x, through_scale=False).sum(), x)
    step = 1e-6
    numbers = (at_fixed_size(x.detach() + step) - at_fixed_size(x.detach() - step)) / (2 * step)
    torch.testing.assert_close(found, numbers, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zeros_stay_exact_in_half_precision_and_under_vmap(name):
    x = torch.randn(6, 256, generator=torch.Generator().manual_seed(4))
    half = FUNCTIONS[name](x.bfloat16())
    assert half.dtype is torch.bfloat16
    assert float((half == 0).double().mean()) == pytest.approx(0.85, abs=0.03)
    torch.testing.assert_close(half.float(), FUNCTIONS[name](x), atol=0.03, rtol=0.03)
    # 300² overflows float16; the size is summed in single precision.
    assert FUNCTIONS[name](300.0 * x.half()).isfinite().all()
    torch.testing.assert_close(torch.func.vmap(FUNCTIONS[name])(x), FUNCTIONS[name](x))
    slopes = torch.func.vmap(torch.func.grad(lambda row: FUNCTIONS[name](row).sum()))(x)
    leaf = x.clone().requires_grad_()
    FUNCTIONS[name](leaf).sum().backward()
    torch.testing.assert_close(slopes, leaf.grad)


@pytest.mark.parametrize(("name", "through_scale"), [("relu", True), ("cst", False)])
def test_compiled_code_gives_the_same_at_any_batch(name, through_scale):
    compiled = torch.compile(
        lambda x: FUNCTIONS[name](x, through_scale=through_scale), backend="aot_eager", fullgraph=True, dynamic=True
    )
    for rows in (2, 5):
        x = torch.randn(rows, 40, generator=torch.Generator().manual_seed(rows), requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        y, expected = compiled(x), FUNCTIONS[name](twin, through_scale=through_scale)
        torch.testing.assert_close(y, expected)
        y.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(x.grad, twin.grad)


# --- in models ---


@pytest.mark.parametrize("frozen", [False, True])
def test_a_chain_of_them_runs_on_the_engine(frozen):
    design = hush.design("relative_crelu", 0.85, width=48, depth=3)
    model = hn.mlp(16, 4, design)
    hush.init_(model, design, generator=torch.Generator().manual_seed(0))
    x = torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
    expected = model(x)
    gradients = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    hush.sparse.accelerate(model, adaptive=False, frozen=frozen)
    report = hush.sparse.report(model)
    assert sum(len(names) for names in report.taken) == 3
    assert not report.left
    with torch.set_grad_enabled(not frozen):
        torch.testing.assert_close(model(x), expected.detach() if frozen else expected)
    if not frozen:
        for got, plain in zip(
            torch.autograd.grad(model(x).square().sum(), list(model.parameters())), gradients, strict=True
        ):
            torch.testing.assert_close(got, plain, rtol=1e-4, atol=1e-5)


def test_swapped_in_they_are_saved_and_know_their_units():
    design = hush.design("relative_crelu", 0.9, width=8, depth=2, through_scale=False)
    plain = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    hn.swap_activations(plain, design)
    assert isinstance(plain[1], hn.RelativeCReLU)
    assert plain[1].dim == -1
    assert not plain[1].through_scale
    state = plain.state_dict()
    other = nn.Sequential(nn.Linear(4, 8), hn.RelativeCReLU(0.1, 0.2), nn.Linear(8, 2))
    other.load_state_dict(state)
    assert (other[1].threshold, other[1].clip) == (design.threshold, design.clip)
    images = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
    with pytest.raises(ValueError, match="pass dim=1"):
        hn.swap_activations(images, design)
    hn.swap_activations(images, design, dim=1)
    assert images[1].dim == 1
    with pytest.raises(ValueError, match="relative to a layer's own size"):
        hn.swap_activations(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), hush.design("crelu", 0.9, clip=1.0), dim=1)


def test_channels_are_the_units_of_a_convolution():
    design = hush.design("relative_relu", 0.85, width=6, depth=2)
    assert hn.cnn(1, 3, design).phi1.dim == 1
    assert hn.mlp(4, 3, design).phi1.dim == -1
    wrong = nn.Sequential(nn.Conv2d(1, 6, 3), design.module(), nn.Conv2d(6, 6, 3))
    with pytest.raises(ValueError, match=r"over dim = -1, and the units of the Conv2d.* are dim = 1"):
        hush.init_(wrong, design)
    right = nn.Sequential(nn.Conv2d(1, 6, 3), hn.from_design(design, dim=1), nn.Conv2d(6, 6, 3))
    hush.init_(right, design)


def test_nothing_is_held_that_holds_itself():
    design = hush.design("relative_relu", 0.85, width=8, depth=2)
    with pytest.raises(ValueError, match="moves with it already"):
        hush.hold(hn.mlp(4, 3, design), 0.85)


def test_a_model_of_another_backward_than_the_design_is_refused():
    design = hush.design("relative_relu", 0.85, width=8, depth=2)
    model = nn.Sequential(nn.Linear(4, 8), hn.RelativeReLU(design.threshold, through_scale=False), nn.Linear(8, 2))
    with pytest.raises(ValueError, match="through_scale=False.* but the design is for RelativeReLU"):
        hush.init_(model, design)


def test_checkpoints_keep_the_design(tmp_path):
    design = hush.design("relative_cst", 0.85, width=8, depth=2, through_scale=False)
    model = hn.mlp(4, 3, design)
    hn.checkpoint.save(model, design, tmp_path / "model")
    loaded, again = hn.checkpoint.load(tmp_path / "model")
    assert again == design
    assert repr(loaded) == repr(model)


# --- diagnosed ---


@pytest.mark.parametrize("through_scale", [True, False])
def test_a_chain_is_diagnosed_by_its_own_bands(through_scale):
    design = hush.design("relative_crelu", 0.85, clip=1.0, width=100, depth=8, q_star=2.0, through_scale=through_scale)
    model = hn.mlp(64, 10, design)
    generator = torch.Generator().manual_seed(0)
    hush.init_(model, design, generator=generator)
    x = math.sqrt(2.0) * torch.randn(64, 64, generator=generator)
    for found in (hush.diagnose(model, x, design=design), hush.diagnose(model, x)):
        assert found.no_prediction == ""
        for layer in found.layers:
            assert layer.q_band[0] < layer.q < layer.q_band[1]
            assert layer.sparsity_band[0] < layer.sparsity < layer.sparsity_band[1]
            assert layer.gain_log10_band[0] <= layer.gain_log10 <= layer.gain_log10_band[1]
        shares = [layer.saturated for layer in found.layers]
        # P(z > τ + m) of ψ: a clip of m rms(h) is another number in every sample.
        assert sum(shares) / len(shares) == pytest.approx(design.phi().saturation(1.0), abs=0.01)


def test_a_residual_network_is_diagnosed_function_by_function():
    design = hush.design("relative_crelu", 0.9, width=48, depth=4, block="feedforward", norm="rms", hidden=192)
    model = hn.residual_mlp(64, 10, design, hidden=192)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(48, 64, generator=generator)
    hush.init_(model, design, x, generator=generator)
    found = hush.diagnose(model, x, design=design)
    assert found.no_prediction == ""
    assert not found.restarts
    for layer in found.layers:
        assert layer.sparsity_predicted == pytest.approx(0.9, abs=0.002)
        assert layer.sparsity == pytest.approx(0.9, abs=0.02)
        assert layer.gain_log10_band[0] <= layer.gain_log10 <= layer.gain_log10_band[1]
