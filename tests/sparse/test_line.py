"""Modules that call their children one after another are Sequentials written out: fused, and never different."""

import copy
import types

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
import hush.sparse
from hush.sparse import accelerate, engine_calls, fused_backward
from hush.sparse.line_reader import read_line

from .alike import (
    assert_alike,
    assert_edit_is_seen,
    assert_left_to_torch,
    assert_same_gradients,
    assert_same_parameters,
    assert_travels,
    engine_runs,
    twins,
)
from .conftest import assert_near


class Mlp(nn.Module):
    """As timm writes it."""

    def __init__(self, phi=None, bias=True, dropout=0.0):
        super().__init__()
        self.fc1, self.act = nn.Linear(12, 40, bias=bias), phi or hn.CReLU(0.3, 0.5)
        self.drop1, self.norm = nn.Dropout(dropout), nn.Identity()
        self.fc2, self.drop2 = nn.Linear(40, 12, bias=bias), nn.Dropout(0.0)

    def forward(self, x):
        x = self.fc1(x)
        x = self.act(x)
        x = self.drop1(x)
        x = self.norm(x)
        x = self.fc2(x)
        x = self.drop2(x)
        return x  # noqa: RET504 - as it is written there


class Chain(nn.Module):
    """A chain with its layers in another order than that in which they were made."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(20, 3)
        self.first, self.inner = nn.Linear(12, 20), nn.Linear(20, 20)
        self.act1, self.act2 = hn.ShiftedReLU(0.2), hn.CST(0.3, 0.6)

    def forward(self, x):
        return self.last(self.act2(self.inner(self.act1(self.first(x)))))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.act, self.conv2 = nn.Conv2d(3, 16, 3), hn.CReLU(0.3, 0.5), nn.Conv2d(16, 8, 3)

    def forward(self, x):
        return self.conv2(self.act(self.conv1(x)))


class SeenTwice(Mlp):
    """What the activation gives is used besides."""

    def forward(self, x):
        a = self.act(self.fc1(x))
        return self.fc2(a) + a.sum()


class Earlier(Mlp):
    """A child is called for what it does besides."""

    def forward(self, x):
        a = self.act(self.fc1(x))
        self.drop1(a)
        return self.fc2(a)


class Doubled(Mlp):
    def forward(self, x):
        return 2.0 * self.fc2(self.act(self.fc1(x)))


class Branching(Mlp):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) if self.training else self.fc1(x)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    "phi", [nn.ReLU, lambda: hn.CReLU(0.3, 0.5), lambda: hn.CST(0.3, 0.5), lambda: hn.RelativeReLU(0.4)]
)
def test_a_feed_forward_module_is_fused_and_nothing_differs(phi, bias):
    plain, fast = twins(Mlp(phi(), bias))
    assert hush.sparse.report(fast).taken == (("fc2",),)
    with engine_runs():
        assert_alike(plain, fast, torch.randn(3, 7, 12))
    with torch.no_grad(), engine_runs():
        x = torch.randn(9, 12)
        assert_near(fast(x), plain(x))


def test_a_chain_that_is_written_out_is_one_stretch():
    plain, fast = twins(Chain())
    assert hush.sparse.report(fast).taken == (("inner", "last"),)
    before = engine_calls()
    assert_alike(plain, fast, torch.randn(9, 12))
    assert engine_calls() > before


def test_an_activation_in_front_of_a_convolution():
    plain, fast = twins(Images().to(memory_format=torch.channels_last))
    assert hush.sparse.report(fast).taken == (("conv2",),)
    with engine_runs():
        assert_alike(plain, fast, torch.randn(2, 3, 9, 9).contiguous(memory_format=torch.channels_last))


def test_inside_of_other_modules():
    blocks = [nn.Sequential(nn.LayerNorm(12), Mlp()) for _ in range(2)]
    plain, fast = twins(nn.Sequential(*blocks, nn.Linear(12, 3)))
    assert list(hush.sparse.report(fast).taken) == [("0.1.fc2",), ("1.1.fc2",)]
    assert_alike(plain, fast, torch.randn(9, 12))


REASONS = {
    SeenTwice: "does something else with its tensors",
    Earlier: "gives a Linear something else than what the child before it gave",
    Doubled: "does something else with its tensors",
    Branching: "has a branch",
    nn.Linear: "reads something outside the module",
}


@pytest.mark.parametrize("kind", REASONS)
def test_other_forwards_are_left_alone(kind):
    model = kind(12, 40) if kind is nn.Linear else kind()
    assert REASONS[kind] in read_line(model)
    plain, fast = twins(model)
    assert hush.sparse.report(fast).taken == ()
    assert_alike(plain, fast, torch.randn(9, 12))


def test_the_order_is_that_of_the_calls():
    model = Chain()
    assert read_line(model) == [model.first, model.act1, model.inner, model.act2, model.last]


def _patched(model):
    plain = nn.Linear.forward
    model.fc2.forward = lambda x: 2.0 * plain(model.fc2, x)


def _shadowed(model):
    model.__dict__["act"] = nn.GELU()


EDITS = {
    "another fc2": lambda m: setattr(m, "fc2", nn.Linear(40, 12)),
    "another fc1": lambda m: setattr(m, "fc1", nn.Linear(12, 40)),
    "another phi": lambda m: setattr(m, "act", nn.GELU()),
    "a phi in the place of phi": _shadowed,
    "another threshold": lambda m: setattr(m.act, "threshold", 0.7),
    "a patched fc2": _patched,
    "a hook on fc2": lambda m: m.fc2.register_forward_hook(lambda _m, _x, out: out + 1.0),
    "a hook on phi": lambda m: m.act.register_forward_hook(lambda _m, _x, out: out + 1.0),
    "a hook on fc1": lambda m: m.fc1.register_forward_hook(lambda _m, _x, out: out * 2.0),
    "a hook on the module": lambda m: m.register_forward_hook(lambda _m, _x, out: out * 2.0),
    "no bias": lambda m: m.fc2.register_parameter("bias", None),
    "other numbers": lambda m: m.fc2.weight.data.mul_(2.0),
    "something between": lambda m: setattr(m, "norm", nn.Sigmoid()),
    "a child of the norm": lambda m: setattr(m, "norm", nn.LayerNorm(40)),
    "frozen fc2": lambda m: m.fc2.requires_grad_(False),
    "frozen fc1": lambda m: m.fc1.requires_grad_(False),
    "in place": lambda m: setattr(m, "act", nn.ReLU(inplace=True)),
    "a forward of its own": lambda m: setattr(m, "forward", types.MethodType(Doubled.forward, m)),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_after_accelerate_is_seen(edit):
    assert_edit_is_seen(*twins(Mlp()), torch.randn(9, 12), edit)


def test_another_forward_of_the_class_is_seen(monkeypatch):
    plain, fast = twins(Mlp())
    x = torch.randn(9, 12)
    assert_alike(plain, fast, x)
    with monkeypatch.context() as patch:
        patch.setattr(Mlp, "forward", Doubled.forward)
        assert_alike(plain, fast, x)
    kept = Mlp.forward.__code__
    Mlp.forward.__code__ = Doubled.forward.__code__
    try:
        assert_alike(plain, fast, x)
    finally:
        Mlp.forward.__code__ = kept
    assert_alike(plain, fast, x)


def test_an_activation_in_place_at_the_head_changes_its_input():
    class Headed(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.fc = nn.ReLU(inplace=True), nn.Linear(12, 12)

        def forward(self, x):
            return self.fc(self.act(x))

    plain, fast = twins(Headed())
    x = torch.randn(9, 12)
    seen = [x.clone(), x.clone()]
    with torch.no_grad():
        assert_near(fast(seen[1]), plain(seen[0]))
    assert torch.equal(*seen)


def test_dropout_that_drops_draws_as_in_torch():
    plain, fast = twins(Mlp(dropout=0.5))
    x = torch.randn(9, 12)
    outs = []
    for model in (plain, fast):
        torch.manual_seed(3)
        outs.append(model(x))
    assert_near(outs[1], outs[0])
    assert_alike(plain.eval(), fast.eval(), x)


def test_second_derivatives_and_transforms():
    plain, fast = twins(Mlp(hn.CReLU(0.3, 5.0)))
    x, found = torch.randn(4, 12), []
    for model in (plain, fast):
        y = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(model(y).square().sum(), y, create_graph=True)
        first.square().sum().backward()
        found.append((first.detach(), y.grad, torch.func.jacrev(model)(x), torch.func.vmap(model)(x)))
    for expected, actual in zip(*found, strict=True):
        assert_near(actual, expected, 1e-4)
    assert_same_gradients(plain, fast)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_a_fused_step(make):
    plain = nn.Sequential(Mlp(), nn.LayerNorm(12), Mlp(bias=False))
    fast = copy.deepcopy(plain)
    optimizers = [make(m.parameters(), 1e-2) for m in (plain, fast)]
    accelerate(fast, optimizer=optimizers[1])
    for _ in range(20):
        x = torch.randn(9, 12)
        plain(x).square().mean().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        fused_backward(fast, fast(x).square().mean())
        assert fast[0].fc2.weight.grad is None
        optimizers[1].step()
        optimizers[1].zero_grad()
    assert_same_parameters(plain, fast)


def test_thresholds_that_are_held_between_the_steps_that_count_zeros():
    models = [nn.Sequential(Mlp(), nn.Linear(12, 3))]
    models.append(copy.deepcopy(models[0]))
    for model in models:
        hush.hold(model, 0.8, every=4)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        if model is models[1]:
            accelerate(model)
        draws = torch.Generator().manual_seed(1)
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(9, 12, generator=draws)).square().mean().backward()
            optimizer.step()
    assert_same_parameters(*models)
    assert models[0][0].act.threshold == pytest.approx(models[1][0].act.threshold, rel=1e-5)


def test_centred_gradients():
    models = [Mlp()]
    models.append(copy.deepcopy(models[0]))
    for model in models:
        hush.center_gradients(model)
    plain, fast = models[0], accelerate(models[1])
    with engine_runs():
        for model in (plain, fast):
            torch.manual_seed(2)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(9, 12)).square().mean().backward()
                optimizer.step()
    assert_same_parameters(plain, fast)


def test_copies_files_scripts_and_back():
    assert_travels(*twins(Mlp(nn.ReLU())), torch.randn(9, 12))


def test_what_torch_is_to_run():
    plain, fast = twins(Mlp())
    x = torch.randn(9, 12)
    assert_left_to_torch(plain, fast, x)
    with pytest.raises(ValueError, match="for inference only"):
        accelerate(copy.deepcopy(plain), frozen=True)(x)
