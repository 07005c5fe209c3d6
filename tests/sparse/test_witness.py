"""A witness notices every change of what it was shown, and nothing else."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from hush.sparse.witness import Witness, has_hooks


def model():
    return nn.Sequential(OrderedDict(a=nn.Linear(3, 4), act=nn.ReLU(), b=nn.Linear(4, 2)))


def witness_of(net, values=False):
    witness = Witness()
    witness.children(net)
    for child in net:
        witness.module(child)
    for child in (net.a, net.b):
        witness.entry(child._parameters, "weight")
    witness.memory([net.a.weight, net.b.weight], values=values)
    return witness


def reorder(net):
    net._modules["a"] = net._modules.pop("a")


def patched(net):
    net.b.forward = lambda x: x


CHANGES = {
    "replaced": lambda net: setattr(net, "act", nn.Tanh()),
    "appended": lambda net: net.append(nn.ReLU()),
    "deleted": lambda net: net.__delitem__(-1),
    "in another order": reorder,
    "other children": lambda net: setattr(net, "_modules", dict(net._modules)),
    "patched": patched,
    "of another class": lambda net: setattr(net.b, "__class__", nn.Bilinear),
    "hooked": lambda net: net.act.register_forward_hook(lambda *_: None),
    "hooked before": lambda net: net.a.register_full_backward_pre_hook(lambda *_: None),
    "other hooks": lambda net: setattr(net.a, "_forward_hooks", OrderedDict()),
    "another parameter": lambda net: setattr(net.a, "weight", nn.Parameter(torch.zeros(4, 3))),
    "without a parameter": lambda net: net.a.register_parameter("weight", None),
    "elsewhere": lambda net: setattr(net.a.weight, "data", torch.zeros(4, 3)),
    "cut off": lambda net: setattr(net.a.weight, "data", net.a.weight.data[:2]),
    "turned around": lambda net: setattr(net.a.weight, "data", net.a.weight.data.t()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed_at_the_first_question_and_later(change):
    for looks_before in (0, 1, 3):
        net = model()
        witness = witness_of(net)
        for _ in range(looks_before):
            assert witness.holds()
        change(net)
        assert not witness.holds()
        assert not witness.holds()


def test_what_is_no_change():
    net = model()
    witness = witness_of(net)
    with torch.no_grad():
        net.a.weight.mul_(2)
    net.eval()
    net.a.weight.requires_grad_(False)
    net.act.note = "mine"
    net.load_state_dict(model().state_dict())
    net(torch.randn(2, 3))
    assert witness.holds()


def test_values_count_where_they_are_asked_for():
    net = model()
    witness = witness_of(net, values=True)
    assert witness.holds()
    with torch.no_grad():
        net.b.weight.add_(1)
    assert not witness.holds()


def test_a_hook_that_is_gone_again():
    net = model()
    handle = net.act.register_forward_hook(lambda *_: None)
    assert has_hooks(net.act)
    witness = witness_of(net)
    assert witness.holds()
    handle.remove()
    assert not witness.holds()
