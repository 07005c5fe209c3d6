"""A Linear before an activation: dense forward, and a backward that leaves out the zeros of ∂L/∂out."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hush.nn as hn
from hush.sparse import accelerate, crossover, fused_backward, lone_linear

from .alike import assert_alike, assert_same_gradients, assert_same_parameters, twins
from .conftest import assert_near

pytestmark = pytest.mark.usefixtures("by_gradient")


@pytest.fixture(autouse=True)
def _one_thread(_two_threads):
    """The kernels' threads are tested with the products; two that wait for one another take seconds."""
    torch.set_num_threads(1)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.02),
    "decay": lambda p: torch.optim.SGD(p, lr=0.02, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
}


class Block(nn.Module):
    """W₂ φ(W₁ x + b₁) + b₂ as timm and Hugging Face write it, or gated as Llama has it."""

    def __init__(self, gated=False, bias=True, act=None):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(12, 40, bias=bias), nn.Linear(40, 7, bias=bias)
        self.up = nn.Linear(12, 40, bias=bias) if gated else None
        self.act, self.drop = act or hn.CReLU(0.3, 0.8), nn.Dropout(0.0)

    def forward(self, x):
        h = self.drop(self.act(self.fc1(x)))
        return self.fc2(h if self.up is None else h * self.up(x))


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", [(9, 12), (2, 5, 12), (2, 1, 3, 12), (0, 12), (2, 0, 12), (12,)], ids=str)
def test_a_block_is_never_different(gated, bias, shape, products):
    assert_alike(*twins(Block(gated, bias)), torch.randn(*shape))
    assert products == [(True, True)] * (3 if gated else 2)


@pytest.mark.parametrize("frozen", ["fc1", "fc2", "fc1.weight", "fc1.bias", "all but fc1.bias"])
def test_only_the_products_that_are_needed(frozen, products):
    plain = Block()
    for name, p in plain.named_parameters():
        p.requires_grad_(name == "fc1.bias" if frozen == "all but fc1.bias" else not name.startswith(frozen))
    plain, fast = twins(plain)
    assert_alike(plain, fast, torch.randn(9, 12))
    products.clear()
    for model in (plain, fast):  # now x needs no gradient either
        model.zero_grad()
        model(torch.ones(9, 12)).square().sum().backward()
    assert_same_gradients(plain, fast)
    first = [] if frozen in ("fc1", "fc1.weight", "all but fc1.bias") else [(True, False)]
    if frozen == "fc1.bias":
        first = [(True, False)]
    second = {"fc1": [(True, False)], "fc2": [(False, True)], "all but fc1.bias": [(False, True)]}
    assert products == second.get(frozen, [(True, True)]) + first


def test_thresholds_that_change_between_calls_are_seen(products):
    plain, fast = twins(Block())
    for threshold in (0.3, 0.9, -0.5, 0.0):
        for model in (plain, fast):
            model.act.threshold = threshold
        assert_alike(plain, fast, torch.randn(9, 12))
    assert len(products) == 8


@pytest.mark.parametrize("where", ["output gradient", "input", "weight"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_go_where_dense_arithmetic_takes_them(where, bad):
    plain = nn.Linear(12, 40)
    x, grad = torch.randn(9, 12), torch.randn(9, 40) * (torch.rand(9, 40) < 0.2)
    {"output gradient": grad, "input": x, "weight": plain.weight.data}[where][3, 4] = bad
    grad[:, 6], grad[0] = 0.0, 0.0  # a unit and a sample that dense arithmetic multiplies all the same
    found = []
    for model in (plain, accelerate(copy.deepcopy(plain))):
        y = x.clone().requires_grad_()
        model(y).backward(grad)
        found.append((y.grad, model.weight.grad, model.bias.grad))
    for expected, actual in zip(*found, strict=True):
        assert torch.equal(actual.isnan(), expected.isnan())
        assert torch.equal(actual.isinf(), expected.isinf())


def _gradients_at(model, x, look):
    seen = []
    handle = model.fc1.register_forward_hook(lambda module, given, out: look(out, seen))
    model.zero_grad()
    model(x).square().sum().backward()
    handle.remove()
    return [g.grad if g.requires_grad else g for g in seen]


def _hook(out, seen):
    out.register_hook(lambda g: seen.append(g.clone()) or 2.0 * g)


def _retain(out, seen):
    out.retain_grad()
    seen.append(out)


@pytest.mark.parametrize("look", [_hook, _retain], ids=["hook", "retain_grad"])
def test_onlookers_see_and_change_the_output_gradient(look):
    plain, fast = twins(Block())
    x = torch.randn(9, 12)
    for expected, actual in zip(_gradients_at(plain, x, look), _gradients_at(fast, x, look), strict=True):
        assert_near(actual, expected, 1e-4)
    assert_same_gradients(plain, fast)


def test_second_derivatives():
    plain, fast = twins(Block())
    x, found = torch.randn(9, 12), []
    for model in (plain, fast):
        y = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(y).square().sum(), y, create_graph=True)
        slope.square().sum().backward()
        found.append(y.grad)
    assert_near(found[1], found[0], 1e-4)
    assert_same_gradients(plain, fast)


def test_batched_gradients_and_function_transforms():
    plain, fast = twins(Block())
    x, found = torch.randn(3, 12), []
    for model in (plain, fast):
        y = x.clone().requires_grad_()
        rows = torch.eye(7).unsqueeze(1).expand(7, 3, 7)
        (batched,) = torch.autograd.grad(model(y), y, rows, is_grads_batched=True, retain_graph=True)
        jacobian = torch.func.jacrev(lambda v, m=model: torch.func.functional_call(m, dict(m.named_parameters()), v))(x)
        found.append((batched, jacobian))
    for expected, actual in zip(*found, strict=True):
        assert_near(actual, expected, 1e-4)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    plain, fast = twins(Block())
    x = torch.randn(9, 12)
    for _ in range(3):
        assert_alike(plain, fast, x, lambda model, y: checkpoint(model, y, use_reentrant=reentrant))


def test_checkpointing_meets_the_same_node_again(monkeypatch):
    """The forward and its repetition must keep the same tensors, whatever the looks at the density say."""
    monkeypatch.setattr(crossover, "limit", lambda *a, by_gradient=False: 0.3 if by_gradient else -1.0)
    plain, fast = twins(Block(act=nn.Hardtanh(-5.0, 5.0)))
    for _ in range(40):
        assert_alike(plain, fast, torch.randn(3, 12), lambda model, y: checkpoint(model, y, use_reentrant=False))


def test_an_activation_in_place_behind_it():
    for shape in ((9, 12), (2, 5, 12)):
        assert_alike(*twins(Block(act=nn.ReLU(inplace=True))), torch.randn(*shape))


def test_what_is_not_kept_may_change_before_the_backward():
    for needs_x in (False, True):
        plain, fast = twins(nn.Linear(12, 40))
        raised = []
        for model in (plain, fast):
            out = model(torch.ones(3, 12, requires_grad=needs_x))
            with torch.no_grad():
                model.weight.mul_(2.0)
            try:
                out.relu().sum().backward()
            except RuntimeError as error:
                raised.append("inplace operation" in str(error))
        assert raised == ([True, True] if needs_x else [])
        assert_same_gradients(plain, fast)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile itself calls something it has deprecated
def test_autocast_and_compile_run_on_torch(products):
    plain, fast = twins(Block())
    x, outs = torch.randn(9, 12), []
    for model in (plain, fast):
        with torch.autocast("cpu", torch.bfloat16):
            outs.append(model(x))
        outs[-1].float().square().sum().backward()
    assert torch.equal(*outs)
    assert_same_gradients(plain, fast)
    assert products == []
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)
    assert_alike(plain, fast, x, lambda model, y: compiled(y) if model is fast else model(y))


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("layout", ["torch", "input_major"])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_step_updates_the_first_linear_inside_the_backward(make, layout, gated, products):
    plain = Block(gated)
    fast = copy.deepcopy(plain)
    optimizers = [make(m.parameters()) for m in (plain, fast)]
    accelerate(fast, optimizer=optimizers[1], layout=layout)
    first = [fast.fc1] if fast.up is None else [fast.fc1, fast.up]
    strides = (12, 1) if layout == "torch" else (1, 40)
    for _ in range(50):
        x = torch.randn(9, 12, requires_grad=layout == "input_major")
        plain(x).square().mean().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        loss = fast(x).square().mean()
        fused_backward(fast, loss)
        assert all(m.weight.grad is None for m in first)
        optimizers[1].step()
        optimizers[1].zero_grad()
    assert len(products) == (150 if gated else 100)
    assert all(m.weight.stride() == strides for m in first)
    assert_same_parameters(plain, fast)


def _hooked(model, x):
    model.fc1.weight.register_hook(lambda g: 2.0 * g)
    return model(x).square().mean()


ORDINARY = {
    "used twice": lambda model, x: (model(x) + model(x + 1.0)).square().mean(),
    "a penalty": lambda model, x: model(x).square().mean() + model.fc1.weight.square().sum(),
    "hooked": _hooked,
    # The input of the second call lies in the memory of the weight that the first one would change.
    "read as an input": lambda model, x: (model(x).sum() + model(model.fc1.weight.detach()[:9])).square().mean(),
}


@pytest.mark.parametrize("how", ORDINARY.values(), ids=ORDINARY)
def test_a_weight_that_is_wanted_elsewhere_takes_the_ordinary_way(how, products):
    plain = Block()
    fast = copy.deepcopy(plain)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (plain, fast)]
    accelerate(fast, optimizer=optimizers[1])
    x = torch.randn(9, 12)
    how(plain, x).backward()
    optimizers[0].step()
    fused_backward(fast, how(fast, x))
    assert fast.fc1.weight.grad is not None
    optimizers[1].step()
    assert_same_parameters(plain, fast)
    assert products


# What decides whether zeros are left out at all.


@pytest.fixture
def limit(monkeypatch):
    """As if 0.3 had been measured."""
    monkeypatch.delenv("HUSH_CROSSOVER")
    monkeypatch.setattr(lone_linear, "_LEAST_WORK", 100)
    monkeypatch.setattr(crossover, "ensure_measured", lambda *a, **k: None)
    monkeypatch.setattr(crossover, "limit", lambda *a, by_gradient=False: 0.3)


def _ran(model, x, grad):
    out = model(x)
    out.backward(grad)
    return out.grad_fn.name()


def test_dense_gradients_are_looked_at_now_and_then(limit, products):
    model, x = accelerate(nn.Linear(12, 40)), torch.randn(9, 12)
    dense = torch.ones(9, 40)
    names = [_ran(model, x, dense) for _ in range(33)]
    assert [name == "AddmmBackward0" for name in names] == [False, *[True] * 31, False]
    assert products == []
    quiet = dense * (torch.rand(9, 40) < 0.2)
    for _ in range(32):
        _ran(model, x, quiet)
    assert 1 <= len(products) <= 32
    products.clear()
    assert [_ran(model, x, quiet) for _ in range(3)] == ["LinearFunctionBackward"] * 3
    assert len(products) == 3
    _ran(model, x, dense)  # the one that finds out
    assert _ran(model, x, dense) == "AddmmBackward0"


def test_a_small_linear_stays_with_torchs_own_node(limit, monkeypatch):
    monkeypatch.setattr(lone_linear, "_LEAST_WORK", 9 * 12 * 40 + 1)
    assert _ran(accelerate(nn.Linear(12, 40)), torch.randn(9, 12), torch.zeros(9, 40)) == "AddmmBackward0"


def test_without_a_measurement_a_fixed_share_of_zeros_decides(limit, monkeypatch, products):
    monkeypatch.setattr(crossover, "limit", None)  # whoever asks for a measurement fails
    model, x = accelerate(nn.Linear(12, 40), adaptive=False), torch.randn(9, 12)
    _ran(model, x, torch.ones(9, 40))
    assert products == []
    model = accelerate(nn.Linear(12, 40), adaptive=False)
    _ran(model, x, torch.eye(9, 40))
    assert products == [(True, False)]


def test_nothing_is_different_where_no_gradient_is_wanted(limit):
    model = accelerate(nn.Linear(12, 40))
    with torch.no_grad():
        assert model(torch.randn(9, 12)).grad_fn is None
    model.requires_grad_(False)
    assert model(torch.randn(9, 12)).grad_fn is None
