"""hush.sparse.step: backward, update and zero_grad in one; outside it a fused optimizer is an ordinary one."""

import copy

import pytest
import torch
from torch import nn

import hush.nn as hn
from hush.sparse import accelerate, report, step

from .alike import assert_same_gradients, assert_same_parameters, engine_runs, mlp
from .conftest import assert_near

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "weight decay": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-3),
}
EVERY = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())


class Twins:
    """A plain model with its optimizer, and the same accelerated with its own."""

    def __init__(self, model, make=OPTIMIZERS["SGD"], parameters=lambda m: list(m.parameters())):
        self.plain, self.fast = model, copy.deepcopy(model)
        self.theirs, self.ours = make(parameters(self.plain)), make(parameters(self.fast))
        accelerate(self.fast, optimizer=self.ours)
        self.x = torch.randn(16, 12)

    def plainly(self, loss):
        loss(self.plain, self.x).backward()
        self.theirs.step()
        self.theirs.zero_grad()

    def both(self, loss):
        self.plainly(loss)
        step(self.fast, loss(self.fast, self.x))

    def assert_same(self):
        assert_same_parameters(self.plain, self.fast)
        assert_same_gradients(self.plain, self.fast)


def square(model, x):
    return model(x).square().mean()


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.a, self.b = hn.ShiftedReLU(0.05), nn.Linear(12, 12), nn.Linear(12, 12)
        self.body = nn.Sequential(self.act, self.a, self.act, self.b, self.act, self.a)

    def forward(self, x):
        return self.body(self.a(self.act(x)))


@EVERY
@pytest.mark.parametrize("model", [mlp, Shared])
def test_a_step_is_backward_update_and_zero_grad(make, model):
    t = Twins(model(), make)
    with engine_runs():
        for _ in range(5):
            t.both(square)
    t.assert_same()
    assert all(p.grad is None for p in t.fast.parameters())


@EVERY
def test_the_same_in_torchs_own_words(make):
    """loss.backward(); optimizer.step(): nothing is fused, everything is right."""
    t = Twins(mlp(), make)
    for model, optimizer in ((t.plain, t.theirs), (t.fast, t.ours)):
        for _ in range(5):
            optimizer.zero_grad()
            square(model, t.x).backward()
            optimizer.step()
    t.assert_same()


def test_steps_of_both_kinds_in_turn():
    t = Twins(mlp(), OPTIMIZERS["momentum"])
    for k in range(6):
        t.plainly(square)
        if k % 2:
            step(t.fast, square(t.fast, t.x))
        else:
            square(t.fast, t.x).backward()
            t.ours.step()
            t.ours.zero_grad()
    t.assert_same()


@pytest.mark.parametrize("of", ["input", "parameters"])
def test_autograd_grad_leaves_the_weights_alone(of):
    t = Twins(mlp())
    before = [p.detach().clone() for p in t.fast.parameters()]
    x = t.x.requires_grad_()
    results = []
    for model in (t.plain, t.fast):
        wanted = [x] if of == "input" else list(model.parameters())
        results.append(torch.autograd.grad(square(model, x), wanted))
    for e, a in zip(*results, strict=True):
        assert_near(a, e, 1e-4)
    assert all(torch.equal(a, b) for a, b in zip(before, t.fast.parameters(), strict=True))
    assert all(p.grad is None for p in t.fast.parameters())


def test_a_plain_backward_leaves_the_weights_alone():
    t = Twins(mlp())
    before = [p.detach().clone() for p in t.fast.parameters()]
    square(t.fast, t.x).backward()
    assert all(torch.equal(a, b) for a, b in zip(before, t.fast.parameters(), strict=True))
    square(t.plain, t.x).backward()
    assert_same_gradients(t.plain, t.fast)


def test_clipped_gradients():
    t, norms = Twins(mlp()), []
    for model, optimizer in ((t.plain, t.theirs), (t.fast, t.ours)):
        (100.0 * square(model, t.x)).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
        optimizer.step()
    assert norms[0] > 0.1
    assert_near(norms[1], norms[0], 1e-4)
    t.assert_same()


def test_accumulated_gradients():
    t = Twins(mlp(), OPTIMIZERS["AdamW"])
    for model, optimizer in ((t.plain, t.theirs), (t.fast, t.ours)):
        for scale in (1.0, 0.5):
            square(model, scale * t.x).backward()
        optimizer.step()
    t.assert_same()


def test_a_step_after_a_plain_backward_takes_its_gradients_along():
    t = Twins(mlp(), OPTIMIZERS["momentum"])
    for model in (t.plain, t.fast):
        square(model, 0.5 * t.x).backward()
    t.both(square)
    t.assert_same()


def test_a_scaler_of_gradients():
    t = Twins(mlp())
    for model, optimizer in ((t.plain, t.theirs), (t.fast, t.ours)):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(square(model, t.x)).backward()
            scaler.step(optimizer)
            scaler.update()
    t.assert_same()


def test_the_optimizer_of_another_model_is_refused_before_anything_changes():
    model, other = mlp(), mlp()
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match="optimizer"):
        accelerate(model, optimizer=torch.optim.SGD(other.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="not accelerated"):
        report(model)
    assert all("forward" not in m.__dict__ for m in model.modules())
    for a, b in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()


def test_the_wrong_optimizer_on_an_accelerated_model_leaves_it_as_it_was():
    t, other = Twins(mlp()), mlp()
    with pytest.raises(ValueError, match="optimizer"):
        accelerate(t.fast, optimizer=torch.optim.SGD(other.parameters(), lr=0.1))
    t.both(square)
    t.assert_same()


def test_step_needs_a_model_with_an_optimizer():
    for model in (mlp(), accelerate(mlp())):
        with pytest.raises(ValueError, match="optimizer"):
            step(model, square(model, torch.randn(4, 12)))
        assert all(p.grad is None for p in model.parameters())


def test_an_optimizer_of_some_of_the_parameters():
    t = Twins(mlp(), parameters=lambda m: [*m[-1].parameters(), m[2].weight])
    for _ in range(3):
        t.both(square)
    t.assert_same()


def test_terms_of_the_weights_in_the_loss():
    t = Twins(mlp())
    for _ in range(3):
        t.both(lambda m, x: square(m, x) + 0.1 * sum(p.square().sum() for p in m.parameters()))
    t.assert_same()


class ReadTwice(nn.Module):
    """One weight, read with a gradient and, earlier in the graph, without."""

    def __init__(self, read):
        super().__init__()
        self.first, self.act, self.fc, self.read = nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12), read

    def forward(self, x):
        h = nn.functional.linear(self.first(x), self.read(self.fc))
        return self.fc(self.act(h))


@pytest.mark.parametrize("read", [lambda m: m.weight.detach(), lambda m: m.weight.data], ids=["detach", "data"])
def test_a_weight_that_is_read_elsewhere_in_the_graph(read):
    """Its update inside the backward would come before the gradient that needs the weight as it was."""
    t = Twins(ReadTwice(read), lambda p: torch.optim.SGD(p, lr=0.5))
    for _ in range(2):
        t.both(lambda m, x: 10.0 * square(m, x))
    t.assert_same()


@pytest.mark.parametrize("when", ["before", "after"])
def test_two_parameters_over_one_memory(when):
    """The old way of tying weights: two parameters, and what is written into one is read from the other."""

    def share(model):
        model[4].weight.data = model[2].weight.data
        return model

    def large(model, x):
        return 10.0 * square(model, x)

    t = Twins(mlp())
    if when == "before":  # a deepcopy would separate the two
        t.fast = share(copy.deepcopy(t.plain))
        t.ours = OPTIMIZERS["SGD"](t.fast.parameters())
        accelerate(t.fast, optimizer=t.ours)
        assert t.fast[4].weight.data_ptr() == t.fast[2].weight.data_ptr()
    else:
        share(t.fast)
    share(t.plain)
    for _ in range(3):
        t.both(large)
    t.assert_same()


def test_two_forwards_in_one_loss():
    t = Twins(mlp(), OPTIMIZERS["AdamW"])
    for _ in range(3):
        t.both(lambda m, x: (m(x) - m(x.flip(0))).square().mean() + square(m, x))
    t.assert_same()


def double_gradient(p):
    p.grad.mul_(2.0)


def test_frozen_layers_and_hooks_on_parameters():
    t = Twins(mlp())
    for model in (t.plain, t.fast):
        model[2].weight.requires_grad_(False)
        model[4].weight.register_hook(lambda g: 3.0 * g)
        model[4].bias.register_post_accumulate_grad_hook(double_gradient)
    for _ in range(3):
        t.both(square)
    t.assert_same()


def test_parameters_replaced_and_groups_added():
    t = Twins(mlp())
    for model, optimizer in ((t.plain, t.theirs), (t.fast, t.ours)):
        torch.manual_seed(5)
        model[2].weight = nn.Parameter(torch.randn(24, 24) / 5)
        optimizer.add_param_group({"params": [model[2].weight], "lr": 0.5})
        model[4].weight = nn.Parameter(torch.randn(24, 24) / 5)  # unknown to the optimizer: its gradient is kept
    for _ in range(3):
        t.both(square)
    t.assert_same()


def test_a_scheduler_and_a_checkpoint_of_the_optimizer():
    t = Twins(mlp(), OPTIMIZERS["AdamW"])
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (t.theirs, t.ours)]
    for _ in range(3):
        t.both(square)
        for scheduler in schedulers:
            scheduler.step()
    t.theirs.load_state_dict(copy.deepcopy(t.theirs.state_dict()))
    t.ours.load_state_dict(copy.deepcopy(t.ours.state_dict()))
    t.both(square)
    t.assert_same()


def test_a_weight_edited_between_forward_and_step_is_refused_as_torch_refuses_it():
    t = Twins(mlp())
    before = None
    for model, act in ((t.plain, lambda loss: loss.backward()), (t.fast, lambda loss: step(t.fast, loss))):
        loss = square(model, t.x)
        with torch.no_grad():
            model[2].weight.mul_(2.0)
        before = [p.detach().clone() for p in model.parameters()]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            act(loss)
    assert all(torch.equal(a, b) for a, b in zip(before, t.fast.parameters(), strict=True))


def test_a_step_that_fails_on_the_way_is_over():
    t = Twins(mlp())
    handle = t.fast[0].weight.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step(t.fast, square(t.fast, t.x))
    handle.remove()
    before = [p.detach().clone() for p in t.fast.parameters()]
    t.ours.zero_grad()
    square(t.fast, t.x).backward()
    assert all(torch.equal(a, b) for a, b in zip(before, t.fast.parameters(), strict=True))
    assert all(p.grad is not None for p in t.fast.parameters())


def test_a_step_of_one_model_is_none_of_another():
    student, teacher = Twins(mlp()), Twins(mlp())
    before = [p.detach().clone() for p in teacher.fast.parameters()]
    student.plainly(lambda m, x: (m(x) - teacher.plain(x)).square().mean())
    step(student.fast, (student.fast(student.x) - teacher.fast(student.x)).square().mean())
    student.assert_same()
    teacher.assert_same()  # its gradients are there, its weights are what they were
    assert all(torch.equal(a, b) for a, b in zip(before, teacher.fast.parameters(), strict=True))


def test_a_copy_of_the_model_is_not_stepped():
    t = Twins(mlp())
    twin = copy.deepcopy(t.fast)
    before = [p.detach().clone() for p in t.fast.parameters()]
    square(twin, t.x).backward()
    square(t.plain, t.x).backward()
    assert_same_gradients(t.plain, twin)
    assert all(torch.equal(a, b) for a, b in zip(before, t.fast.parameters(), strict=True))
    with pytest.raises(ValueError, match="optimizer"):
        step(twin, square(twin, t.x))
