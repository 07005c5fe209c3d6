"""Modules that compute φ(gate(x)) · up(x): `up` at active units only, and never different from the plain module."""

import copy

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
import hush.sparse
from hush.nn.models.transformers import GatedFeedForward
from hush.sparse import accelerate, fused_backward, lone_linear
from hush.sparse.gated_reader import GatedReading, read_gated

from .alike import (
    assert_alike,
    assert_edit_is_seen,
    assert_left_to_torch,
    assert_same_gradients,
    assert_same_parameters,
    assert_travels,
    twins,
)
from .conftest import assert_near


class Llama(nn.Module):
    """As Hugging Face writes it, with biases and a child behind the product."""

    def __init__(self, phi=None, bias=True):
        super().__init__()
        self.gate_proj = nn.Linear(12, 40, bias=bias)
        self.up_proj = nn.Linear(12, 40, bias=bias)
        self.drop = nn.Dropout(0.0)
        self.down_proj = nn.Linear(40, 12, bias=bias)
        self.act_fn = phi or hn.CReLU(0.3, 0.5)

    def forward(self, x):
        down_proj = self.down_proj(self.drop(self.act_fn(self.gate_proj(x)) * self.up_proj(x)))
        return down_proj  # noqa: RET504 - as it is written there


class Swapped(Llama):
    def forward(self, x):
        u = self.up_proj(x)
        a = self.act_fn(self.gate_proj(x))
        return self.down_proj(u * a)


class SeenTwice(Llama):
    """What `up` gives is used besides."""

    def forward(self, x):
        u = self.up_proj(x)
        return self.down_proj(self.act_fn(self.gate_proj(x)) * u) + self.down_proj(u)


class Dropped(Llama):
    """A child is called for what it does besides."""

    def forward(self, x):
        p = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        self.drop(p)
        return self.down_proj(p)


@pytest.fixture
def limited(monkeypatch):
    """How many entries were computed, call by call."""
    counts, real = [], lone_linear.products_at

    def counted(active, x, weight, backend):
        out, count = real(active, x, weight, backend)
        counts.append(count)
        return out, count

    monkeypatch.setattr(lone_linear, "products_at", counted)
    return counts


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("kind", [Llama, Swapped])
@pytest.mark.parametrize(
    "phi", [nn.ReLU, lambda: hn.CReLU(0.3, 0.5), lambda: hn.CST(0.3, 0.5), lambda: hn.FATReLU(0.2)]
)
def test_only_active_units_are_computed_and_nothing_differs(phi, kind, bias, limited):
    plain, fast = twins(kind(phi(), bias))
    x = torch.randn(3, 7, 12)
    assert_alike(plain, fast, x)
    active = plain.act_fn(plain.gate_proj(x))
    assert limited == [int(torch.count_nonzero(active))]
    with torch.no_grad():
        assert_near(fast(x), plain(x))
    assert len(limited) == 2


def test_a_forward_that_shows_it_to_somebody_else_is_left_alone(limited):
    plain, fast = twins(SeenTwice())
    assert_alike(plain, fast, torch.randn(9, 12))
    assert limited == []


def test_what_is_read():
    model = accelerate(Llama())
    found = read_gated(model)
    assert isinstance(found, GatedReading)
    assert (found.gate, found.phi, found.up) == (model.gate_proj, model.act_fn, model.up_proj)
    assert found.behind == (model.drop, model.down_proj)
    assert "has a Linear where none belongs" in read_gated(accelerate(SeenTwice()))
    assert "whose output it drops" in read_gated(accelerate(Dropped()))
    assert isinstance(read_gated(Llama()), str)  # its Linears are not accelerated
    assert "does more than call its children" in read_gated(
        accelerate(hn.gpt(nn.ReLU, layers=1, width=8, heads=1, context=4))
    )


def _lora(model):
    plain = nn.Linear.forward
    model.up_proj.forward = lambda x: 2.0 * plain(model.up_proj, x)


def _negative(model):
    model.act_fn.threshold = -0.2


EDITS = {
    "another up": lambda m: setattr(m, "up_proj", nn.Linear(12, 40)),
    "another gate": lambda m: setattr(m, "gate_proj", nn.Linear(12, 40)),
    "another phi": lambda m: setattr(m, "act_fn", nn.GELU()),
    "another threshold": _negative,
    "a patched up": _lora,
    "a hook on up": lambda m: m.up_proj.register_forward_hook(lambda _m, _x, out: out + 1.0),
    "a hook on phi": lambda m: m.act_fn.register_forward_hook(lambda _m, _x, out: out + 1.0),
    "a hook on the gate": lambda m: m.gate_proj.register_forward_hook(lambda _m, _x, out: out * 2.0),
    "a hook on down": lambda m: m.down_proj.register_forward_hook(lambda _m, _x, out: out * 2.0),
    "no bias": lambda m: m.up_proj.register_parameter("bias", None),
    "other numbers": lambda m: m.up_proj.weight.data.mul_(2.0),
    "one weight for both": lambda m: setattr(m.up_proj, "weight", m.gate_proj.weight),
    "something behind": lambda m: setattr(m, "drop", nn.Sigmoid()),
    "frozen up": lambda m: m.up_proj.requires_grad_(False),
    "frozen gate": lambda m: m.gate_proj.requires_grad_(False),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_after_accelerate_is_seen(edit):
    assert_edit_is_seen(*twins(Llama()), torch.randn(9, 12), edit)


def test_another_forward_of_the_class_is_seen(monkeypatch):
    plain, fast = twins(Llama())
    assert_alike(plain, fast, torch.randn(9, 12))
    monkeypatch.setattr(Llama, "forward", SeenTwice.forward)
    assert_alike(plain, fast, torch.randn(9, 12))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["x", "weight", "bias"])
def test_what_is_not_finite_is_as_in_torch(where, value, limited):
    plain, fast = twins(Llama())
    x = torch.randn(9, 12)
    with torch.no_grad():
        if where == "x":
            x[2, 3] = value
        for model in (plain, fast) if where != "x" else ():
            getattr(model.up_proj, where)[5] = value
    assert_near(fast(x), plain(x))
    assert limited == []


def test_zeros_of_up_alone_need_their_gradient():
    plain, fast = twins(Llama(hn.ShiftedReLU(0.1)))
    with torch.no_grad():
        for model in (plain, fast):
            model.up_proj.weight[:20], model.up_proj.bias[:20] = 0.0, 0.0
    assert_alike(plain, fast, torch.randn(30, 12))
    assert fast.up_proj.weight.grad[:20].abs().max() > 0


def test_a_product_that_is_changed_behind_the_graphs_back():
    plain, fast = twins(Llama(hn.ShiftedReLU(0.1)))
    moved = []

    @torch.no_grad()
    def exchange(_module, given):
        """As many zeros as before, but elsewhere."""
        (p,) = given
        taken, filled = p.nonzero()[0], (p == 0).nonzero()[0]
        p[filled[0], filled[1]], p[taken[0], taken[1]] = 1.0, 0.0
        moved.append(1)

    for model in (plain, fast):
        model.down_proj.register_forward_pre_hook(exchange)
    assert_alike(plain, fast, torch.randn(9, 12))
    assert len(moved) == 2


def test_second_derivatives_and_batches_of_gradients():
    plain, fast = twins(Llama(hn.CReLU(0.3, 5.0)))
    x = torch.randn(4, 12)
    found = []
    for model in (plain, fast):
        y = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(model(y).square().sum(), y, create_graph=True)
        first.square().sum().backward()
        found.append((first.detach(), y.grad))
        out = model(y)
        (batched,) = torch.autograd.grad(out, y, torch.stack([out.detach(), 2.0 * out.detach()]), is_grads_batched=True)
        found[-1] += (batched,)
    for expected, actual in zip(*found, strict=True):
        assert_near(actual, expected, 1e-4)
    assert_same_gradients(plain, fast)
    jacobians = [torch.func.jacrev(model)(x) for model in (plain, fast)]
    assert_near(jacobians[1], jacobians[0], 1e-4)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_fused_step(make, limited):
    plain = nn.Sequential(Llama(bias=False), nn.LayerNorm(12), GatedFeedForward(12, 40, hn.CReLU(0.3, 0.5)))
    fast = copy.deepcopy(plain)
    optimizers = [make(m.parameters()) for m in (plain, fast)]
    accelerate(fast, optimizer=optimizers[1])
    for _ in range(20):
        x = torch.randn(9, 12)
        plain(x).square().mean().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        fused_backward(fast, fast(x).square().mean())
        assert fast[0].up_proj.weight.grad is None
        optimizers[1].step()
        optimizers[1].zero_grad()
    assert len(limited) == 40
    assert_same_parameters(plain, fast)


def test_thresholds_that_are_held_between_the_steps_that_count_zeros(limited):
    models = [nn.Sequential(Llama(), nn.Linear(12, 3))]
    models.append(copy.deepcopy(models[0]))
    for model in models:
        hush.hold(model, 0.8, every=4)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        if model is models[1]:
            accelerate(model)
            assert hush.sparse.report(model).gated == ("0",)
        draws = torch.Generator().manual_seed(1)
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(9, 12, generator=draws)).square().mean().backward()
            optimizer.step()
    assert_same_parameters(*models)
    assert models[0][0].act_fn.threshold == pytest.approx(models[1][0].act_fn.threshold, rel=1e-5)
    assert len(limited) == 9


def test_copies_files_scripts_and_back():
    assert_travels(*twins(Llama(nn.ReLU())), torch.randn(9, 12))


def test_what_torch_is_to_run(limited):
    assert_left_to_torch(*twins(Llama()), torch.randn(9, 12))
    assert limited == [0] * len(limited)  # the batch without samples at most


def test_dense_where_zeros_do_not_pay(monkeypatch, limited):
    monkeypatch.setenv("HUSH_CROSSOVER", "never")
    plain, fast = twins(Llama())
    assert_alike(plain, fast, torch.randn(9, 12))
    assert limited == []


def test_the_report_names_them():
    said = hush.sparse.report(accelerate(nn.Sequential(Llama(), nn.ReLU(), nn.Linear(12, 3))))
    assert said.gated == ("0",)
    assert "  gated  0: up_proj is computed where its activation is not zero" in str(said)
