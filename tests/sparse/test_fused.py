"""The update inside the backward, against torch.optim."""

import copy

import pytest
import torch
from torch import nn

import hush.nn as hn
from hush.sparse import accelerate

from .conftest import assert_near


def mlp(depth=3, width=40):
    layers = [nn.Linear(12, width)]
    for _ in range(depth):
        layers += [hn.CReLU(0.4, 0.9), nn.Linear(width, width)]
    return nn.Sequential(*layers, hn.CReLU(0.4, 0.9), nn.Linear(width, 5))


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


def train(net, opt, steps=5):
    g = torch.Generator().manual_seed(3)
    for _ in range(steps):
        x, y = torch.randn(16, 12, generator=g), torch.randn(16, 5, generator=g)
        opt.zero_grad()
        (net(x) - y).square().mean().backward()
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
    train(fused, b)
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
    train(fused, b)
    assert_same_parameters(fused, plain)
    fused.load_state_dict(plain.state_dict())
    b.load_state_dict(copy.deepcopy(a.state_dict()))  # torch shares the tensors it is given
    train(plain, a)
    train(fused, b)
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
            train(net, opt, 1)
            schedule.step()
    assert_same_parameters(fused, plain)


def test_versions_rise_and_a_second_backward_is_refused():
    model, x = mlp(), torch.randn(4, 12)
    accelerate(model, optimizer=sgd(model.parameters()))
    before = [model[2].weight._version, model[2].bias._version]
    loss = model(x).sum()
    loss.backward(retain_graph=True)
    assert model[2].weight._version > before[0]
    assert model[2].bias._version > before[1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_copy_trains_with_plain_gradients():
    model = mlp()
    accelerate(model, optimizer=sgd(model.parameters()))
    twin = copy.deepcopy(model)
    twin(torch.randn(4, 12)).sum().backward()
    assert twin[2].weight.grad is not None


def test_the_optimizer_must_be_known():
    model = mlp()
    with pytest.raises(ValueError, match="SGD"):
        accelerate(model, optimizer=torch.optim.RMSprop(model.parameters()))
    with pytest.raises(ValueError, match="maximize=True"):
        accelerate(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, maximize=True))
