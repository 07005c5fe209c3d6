"""The update inside the backward, against torch.optim."""

import copy

import pytest
import torch
from torch import nn

import hush.nn as hn
from hush.sparse import accelerate, fused_backward, step

from .conftest import assert_near


def mlp(depth=3, width=40):
    layers = [nn.Linear(12, width)]
    for _ in range(depth):
        layers += [hn.CReLU(0.05, 0.4), nn.Linear(width, width)]
    return nn.Sequential(*layers, hn.CReLU(0.05, 0.4), nn.Linear(width, 5))


def sgd(p):
    return torch.optim.SGD(p, lr=0.05)


def momentum(p):
    return torch.optim.SGD(p, lr=0.02, momentum=0.9, dampening=0.1, weight_decay=0.01)


def adamw(p):
    return torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1)


ALL = [
    sgd,
    lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.01),
    momentum,
    lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    adamw,
]


def train(net, opt, steps=5, fused=False):
    g = torch.Generator().manual_seed(3)
    for _ in range(steps):
        x, y = torch.randn(16, 12, generator=g), torch.randn(16, 5, generator=g)
        loss = (net(x) - y).square().mean()
        opt.zero_grad()
        if fused:
            step(net, loss)
        else:
            loss.backward()
            opt.step()


def assert_same_parameters(fused, plain):
    for p, q in zip(plain.parameters(), fused.parameters(), strict=True):
        assert_near(q.detach(), p.detach(), 2e-5)


@pytest.mark.parametrize("make", ALL)
def test_update_is_torchs(make):
    plain = mlp()
    fused = copy.deepcopy(plain)
    a, b = make(plain.parameters()), make(fused.parameters())
    accelerate(fused, optimizer=b)
    train(plain, a)
    train(fused, b, fused=True)
    assert fused[2].weight.grad is None
    assert_same_parameters(fused, plain)


@pytest.mark.parametrize("make", [momentum, adamw])
def test_state_made_or_loaded_row_major_is_turned_around(make):
    plain = mlp()
    fused = copy.deepcopy(plain)
    a, b = make(plain.parameters()), make(fused.parameters())
    train(plain, a)
    train(fused, b)
    accelerate(fused, optimizer=b)  # the optimizer has states of the plain layout already
    train(plain, a)
    train(fused, b, fused=True)
    assert_same_parameters(fused, plain)
    fused.load_state_dict(plain.state_dict())
    b.load_state_dict(copy.deepcopy(a.state_dict()))  # torch shares the tensors it is given
    train(plain, a)
    train(fused, b, fused=True)
    assert_same_parameters(fused, plain)


@pytest.mark.parametrize("make", ALL)
def test_steps_and_plain_steps_may_alternate(make):
    plain = mlp()
    fused = copy.deepcopy(plain)
    a, b = make(plain.parameters()), make(fused.parameters())
    accelerate(fused, optimizer=b)
    for is_fused in (True, False, True, False):
        train(plain, a, 2)
        train(fused, b, 2, is_fused)
    assert_same_parameters(fused, plain)


def test_a_scheduler_is_followed_and_frozen_layers_stay():
    plain = mlp()
    plain[2].weight.requires_grad_(False)
    plain[4].bias.requires_grad_(False)
    fused = copy.deepcopy(plain)
    for net in (plain, fused):
        opt = sgd([p for p in net.parameters() if p.requires_grad])
        schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        accelerate(fused, optimizer=opt) if net is fused else None
        for _ in range(3):
            train(net, opt, 1, net is fused)
            schedule.step()
    assert_same_parameters(fused, plain)


def updated_inside(model, loss):
    """Names of the parameters that the backward itself updates."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    fused_backward(model, loss)
    return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}


def test_it_really_updates_inside_the_backward():
    model = mlp(2)
    accelerate(model, optimizer=sgd(model.parameters()))
    everything = {f"{k}.{part}" for k in (0, 2, 4, 6) for part in ("weight", "bias")}
    assert updated_inside(model, model(torch.randn(8, 12)).square().sum()) == everything


def test_only_a_step_updates():
    model, x = mlp(), torch.randn(4, 12, requires_grad=True)
    accelerate(model, optimizer=sgd(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]
    torch.autograd.grad(model(x).sum(), x)
    model(x).sum().backward()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert all(p.grad is not None for p in model.parameters())


class Recurrent(nn.Module):
    """Every parameter is used three times."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(hn.CReLU(0.1, 0.9), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12))

    def forward(self, x):
        for _ in range(3):
            x = x + self.inner(x)
        return x[:, :5]


@pytest.mark.parametrize(
    ("make", "term"),
    [
        (Recurrent, lambda m: 0.0),
        (mlp, lambda m: 0.1 * m[2].weight.square().sum()),
        (mlp, lambda m: 0.1 * (m[2].weight * m[4].weight.detach()).sum()),
    ],
    ids=["recurrent", "penalty", "product"],
)
def test_gradients_from_several_places_are_summed_first(make, term):
    plain = make()
    fused = copy.deepcopy(plain)
    a, b = adamw(plain.parameters()), adamw(fused.parameters())
    accelerate(fused, optimizer=b)
    x = torch.randn(16, 12)
    for _ in range(3):
        a.zero_grad()
        (plain(x).square().mean() + term(plain)).backward()
        a.step()
        step(fused, fused(x).square().mean() + term(fused))
    assert_same_parameters(fused, plain)


def test_a_gradient_that_is_there_already_counts():
    plain = mlp()
    fused = copy.deepcopy(plain)
    a, b = sgd(plain.parameters()), sgd(fused.parameters())
    accelerate(fused, optimizer=b)
    x = torch.randn(16, 12)
    for net in (plain, fused):
        net(x).sum().backward()
    plain(x).square().sum().backward()
    a.step()
    step(fused, fused(x).square().sum())
    assert_same_parameters(fused, plain)


def test_hooked_parameters_take_the_ordinary_way():
    model, seen = mlp(1), []
    accelerate(model, optimizer=sgd(model.parameters()))
    model[2].weight.register_hook(lambda g: seen.append(g))
    model[4].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    updated = updated_inside(model, model(torch.randn(8, 12)).square().sum())
    assert len(seen) == 2
    assert updated == {"0.weight", "0.bias", "2.bias", "4.weight"}


def test_a_second_backward_through_changed_weights_is_refused():
    model, x = mlp(), torch.randn(4, 12)
    accelerate(model, optimizer=sgd(model.parameters()))
    before = [model[2].weight._version, model[2].bias._version]
    out = model(x)
    step(model, out.sum())
    assert model[2].weight._version > before[0]
    assert model[2].bias._version > before[1]
    with pytest.raises(RuntimeError, match="second time|modified by an inplace operation"):
        out.square().sum().backward()


def test_a_copy_has_no_optimizer():
    model = mlp()
    accelerate(model, optimizer=sgd(model.parameters()))
    twin = copy.deepcopy(model)
    twin(torch.randn(4, 12)).sum().backward()
    assert twin[2].weight.grad is not None
    with pytest.raises(ValueError, match="no optimizer to step"):
        step(twin, twin(torch.randn(4, 12)).sum())


def test_what_cannot_be_fused_is_said_before_anything_changes():
    model = mlp()
    with pytest.raises(ValueError, match="SGD"):
        accelerate(model, optimizer=torch.optim.RMSprop(model.parameters()))
    with pytest.raises(ValueError, match="maximize=True"):
        accelerate(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, maximize=True))
    with pytest.raises(ValueError, match="holds no parameter of this model"):
        accelerate(model, optimizer=sgd(mlp().parameters()))
    assert type(model) is nn.Sequential
    with pytest.raises(ValueError, match="no optimizer to step"):
        step(accelerate(model), model(torch.randn(2, 12)).sum())
    accelerate(model, optimizer=sgd(model.parameters()))
    with pytest.raises(ValueError, match=r"one number, got \(2, 5\)"):
        step(model, model(torch.randn(2, 12)))
    with torch.no_grad(), pytest.raises(ValueError, match="no graph"):
        step(model, model(torch.randn(2, 12)).sum())


def test_states_of_another_dtype_stay_as_torch_keeps_them():
    plain, fused = mlp(), mlp()
    fused.load_state_dict(plain.state_dict())
    optimizers = [momentum(net.parameters()) for net in (plain, fused)]
    accelerate(fused, optimizer=optimizers[1])
    for net, opt in zip((plain, fused), optimizers, strict=True):
        net.bfloat16()
        x = torch.randn(16, 12, generator=torch.Generator().manual_seed(5))
        net(x.bfloat16()).square().mean().backward()
        opt.step()
        net.float()
        opt.zero_grad()
        train(net, opt, fused=net is fused)
        assert {state["momentum_buffer"].dtype for state in opt.state.values()} == {torch.bfloat16}
    assert_same_parameters(fused, plain)
