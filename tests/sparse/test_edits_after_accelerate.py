"""What is done to a model after `accelerate` has the effect it has on the plain one."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import hush.nn as hn
from hush.sparse import accelerate

from .alike import assert_alike, assert_same_parameters, engine_runs, mlp, twins
from .conftest import assert_near


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act1, self.fc1 = hn.ShiftedReLU(0.1), nn.Linear(12, 12)
        self.act2, self.fc2 = nn.ReLU(), nn.Linear(12, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(x + self.fc2(self.act2(self.fc1(self.act1(x)))))


def both(models, edit):
    """The edit on either twin, with the same random numbers."""
    for model in models:
        torch.manual_seed(7)
        edit(model)


MODULE_EDITS = {
    "layer": lambda m: setattr(m, "fc1", nn.Linear(12, 12)),
    "activation": lambda m: setattr(m, "act2", hn.CST(0.2, 0.5)),
    "unknown activation": lambda m: setattr(m, "act1", nn.GELU()),
    "identity": lambda m: setattr(m, "fc2", nn.Identity()),
    "head": lambda m: setattr(m, "head", nn.Linear(12, 3)),
}


@pytest.mark.parametrize("edit", MODULE_EDITS.values(), ids=MODULE_EDITS.keys())
def test_a_replaced_layer_or_activation_runs(edit):
    models, x = twins(Block()), torch.randn(9, 12)
    assert_alike(*models, x)
    both(models, edit)
    with engine_runs():
        assert_alike(*models, x)
    assert all(p.grad is not None for p in models[1].parameters())


SEQUENTIAL_EDITS = {
    "head": lambda m: m.__setitem__(-1, nn.Linear(24, 3)),
    "head by name": lambda m: setattr(m, str(len(m) - 1), nn.Linear(24, 3)),
    "layer": lambda m: m.__setitem__(2, nn.Linear(24, 24)),
    "activation": lambda m: m.__setitem__(3, hn.SoftThreshold(0.2)),
    "append": lambda m: m.append(nn.ReLU()).append(nn.Linear(5, 2)),
    "extend": lambda m: m.extend([nn.ReLU(), nn.Linear(5, 2)]),
    "del": lambda m: m.__delitem__(-1),
    "del a slice": lambda m: m.__delitem__(slice(2, 4)),
    "insert": lambda m: m.insert(1, nn.Linear(24, 24)),
    "insert a filler": lambda m: m.insert(2, nn.Dropout(0.0)),
    "pop": lambda m: m.pop(1),
    "add a module": lambda m: m.add_module("last", nn.Linear(5, 7)),
}


@pytest.mark.parametrize("edit", SEQUENTIAL_EDITS.values(), ids=SEQUENTIAL_EDITS.keys())
@pytest.mark.parametrize("called", [False, True], ids=["before the first call", "after a call"])
def test_edits_of_a_sequential(edit, called):
    models, x = twins(mlp()), torch.randn(9, 12)
    if called:
        assert_alike(*models, x)
    both(models, edit)
    with engine_runs():
        assert_alike(*models, x)
    assert all(p.grad is not None for p in models[1].parameters())  # the new parameters are trained


@pytest.mark.parametrize("place", [0, 2, 6])
def test_a_patched_forward_runs(place):
    """As adapters of low rank do it, before and after the first call."""
    models, x = twins(mlp()), torch.randn(9, 12)
    assert_alike(*models, x)
    adapters = []

    def patch(model):
        layer = model[place]
        a, b = nn.Parameter(torch.randn(layer.in_features, 2)), nn.Parameter(torch.randn(2, layer.out_features))
        original = layer.forward
        layer.forward = lambda x: original(x) + x @ a @ b
        adapters.append((a, b))

    both(models, patch)
    assert_alike(*models, x)
    for e, a in zip(*adapters, strict=True):
        assert_near(a.grad, e.grad, 1e-4)


def test_a_patched_class():
    models, x = twins(mlp()), torch.randn(9, 12)
    original = nn.Linear.forward
    try:
        nn.Linear.forward = lambda self, x: original(self, x) + 1.0
        assert_alike(*models, x)
    finally:
        nn.Linear.forward = original
    with engine_runs():
        assert_alike(*models, x)


def test_a_patched_function():
    models, x = twins(mlp()), torch.randn(9, 12)
    original = nn.functional.linear
    try:
        nn.functional.linear = lambda *args: original(*args) + 1.0
        assert_alike(*models, x)
    finally:
        nn.functional.linear = original


def test_a_threshold_that_is_a_tensor():
    models, x = twins(mlp(make=lambda: hn.ShiftedReLU(0.1))), torch.randn(9, 12)
    both(models, lambda m: setattr(m[1], "threshold", torch.tensor(0.1)))
    assert_alike(*models, x)
    both(models, lambda m: m[1].threshold.fill_(0.4))
    assert_alike(*models, x)


def test_a_threshold_that_is_learnt():
    def learn(model):
        del model[1].threshold
        model[1].threshold = nn.Parameter(torch.tensor(0.1))

    models, x = twins(mlp(make=lambda: hn.ShiftedReLU(0.1))), torch.randn(9, 12)
    both(models, learn)
    assert_alike(*models, x)
    assert models[1][1].threshold.grad is not None


def test_an_initialiser_that_asks_for_the_class():
    """The idiom of many tutorials; an accelerated Linear must not slip through it."""

    def draw(module):
        if type(module) is nn.Linear:
            nn.init.normal_(module.weight, std=0.2)

    models, x = twins(mlp()), torch.randn(9, 12)
    both(models, lambda m: m.apply(draw))
    assert_alike(*models, x)


PARAMETER_EDITS = {
    "new parameter": lambda m: setattr(m[2], "weight", nn.Parameter(torch.randn(24, 24))),
    "data": lambda m: setattr(m[4].weight, "data", torch.randn(24, 24)),
    "data in place": lambda m: m[2].weight.data.mul_(0.5),
    "in place": lambda m: torch.nn.init.normal_(m[2].weight),
    "one row": lambda m: m[2].weight.detach().__setitem__(0, 1.0),
    "another layout": lambda m: setattr(m[2].weight, "data", torch.randn(24, 24).t()),
    "turned around where it lies": lambda m: setattr(m[2].weight, "data", m[2].weight.data.t()),
    "a view": lambda m: setattr(m[2].weight, "data", torch.randn(30, 31)[3:27, 5:29]),
    "expanded": lambda m: setattr(m[2].weight, "data", torch.randn(1, 24).expand(24, 24)),
    "no bias": lambda m: setattr(m[2], "bias", None),
    "tied": lambda m: setattr(m[2], "weight", m[4].weight),
    "frozen parameter": lambda m: m[2].weight.requires_grad_(False),
    "frozen model": lambda m: m.requires_grad_(False),
    "loaded": lambda m: m.load_state_dict({k: torch.randn(v.shape) for k, v in m.state_dict().items()}),
    "assigned": lambda m: m.load_state_dict({k: torch.randn(v.shape) for k, v in m.state_dict().items()}, assign=True),
    "threshold": lambda m: setattr(m[1], "threshold", 0.3),
    "clip": lambda m: setattr(m[1], "clip", 0.2),
    "double and back": lambda m: m.double().float(),
}


@pytest.mark.parametrize("edit", PARAMETER_EDITS.values(), ids=PARAMETER_EDITS.keys())
@pytest.mark.parametrize("frozen", [False, True], ids=["", "frozen"])
def test_changed_parameters_are_seen(edit, frozen):
    if frozen and edit is PARAMETER_EDITS["data in place"]:
        pytest.skip("frozen=True says that it does not see what is written through .data: torch keeps no record of it")
    models, x = twins(mlp(), frozen=frozen), torch.randn(9, 12)
    with torch.no_grad(), engine_runs():
        assert_near(models[1](x), models[0](x))
    both(models, edit)
    with torch.no_grad():
        assert_near(models[1](x), models[0](x), 1e-4)
    with torch.inference_mode():
        assert_near(models[1](x), models[0](x), 1e-4)
    if not frozen:
        assert_alike(*models, x)


def test_other_dtypes():
    models = twins(mlp())
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.bfloat16, 2e-2), (torch.float32, 1e-4)):
        x = torch.randn(9, 12).to(dtype)
        plain, fast = (m.to(dtype)(x) for m in models)
        assert fast.dtype == dtype
        assert_near(fast.detach(), plain.detach(), tolerance)


@pytest.mark.parametrize("make", [mlp, Block])
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies_in_the_middle_of_training(make, how):
    models, x = twins(make()), torch.randn(9, 12)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in models]

    def train(models, optimizers):
        for model, optimizer in zip(models, optimizers, strict=True):
            for _ in range(3):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()

    train(models, optimizers)
    copies = [_copied(m, how) for m in models]
    if how != "deepcopy":  # what comes out of a file is a plain model
        assert all(type(m).forward is getattr(m.forward, "__func__", None) for m in copies[1].modules())
        accelerate(copies[1])
    with engine_runs():
        assert_alike(*copies, x)
    train(models, optimizers)
    assert_same_parameters(*models)
    before = [p.detach().clone() for p in models[1].parameters()]
    both(copies, lambda m: m.load_state_dict({k: torch.randn(v.shape) for k, v in m.state_dict().items()}))
    assert_alike(*copies, x)
    assert_alike(*models, x)  # the copy's weights are its own
    assert all(torch.equal(a, b) for a, b in zip(before, models[1].parameters(), strict=True))


def _copied(model, how):
    if how == "deepcopy":
        return copy.deepcopy(model)
    if how == "pickle":
        return pickle.loads(pickle.dumps(model))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def test_a_pickle_of_the_plain_class_loads_where_the_model_was_accelerated_twice():
    models, x = twins(mlp()), torch.randn(9, 12)
    accelerate(models[1])
    with engine_runs():
        assert_alike(*models, x)


@pytest.mark.parametrize("kind", ["forward", "pre", "backward", "backward pre", "global"])
def test_hooks_come_and_go(kind):
    models, x = twins(mlp()), torch.randn(9, 12)
    assert_alike(*models, x)
    if kind == "global":
        handles = [nn.modules.module.register_module_forward_hook(lambda m, i, o: 0.5 * o)]
    else:
        register, hook = {
            "forward": (nn.Module.register_forward_hook, lambda m, i, o: 0.5 * o),
            "pre": (nn.Module.register_forward_pre_hook, lambda m, i: i[0] + 0.1),
            "backward": (nn.Module.register_full_backward_hook, lambda m, i, o: (2.0 * i[0],)),
            "backward pre": (nn.Module.register_full_backward_pre_hook, lambda m, o: (2.0 * o[0],)),
        }[kind]
        handles = [register(m[3], hook) for m in models]
    try:
        assert_alike(*models, x)
    finally:
        for handle in handles:
            handle.remove()
    with engine_runs():
        assert_alike(*models, x)


def test_an_activation_that_is_no_longer_known():
    models, x = twins(nn.Sequential(hn.CST(0.3, 0.8), nn.Linear(12, 12))), torch.randn(9, 12)
    assert_alike(*models, x)
    both(models, lambda m: setattr(m[0], "threshold", 0.0))
    assert_alike(*models, x)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2.0 * super().forward(x)


class Reversed(nn.Sequential):
    def forward(self, x):
        for module in reversed(self):
            x = module(x)
        return x


def test_a_class_that_is_changed():
    models, x = twins(nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12))), torch.randn(9, 12)
    assert_alike(*models, x)
    both(models, lambda m: setattr(m[2], "__class__", Doubled))
    assert_alike(*models, x)
    both(models, lambda m: setattr(m, "__class__", Reversed))
    assert_alike(*models, x)
