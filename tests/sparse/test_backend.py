"""The seam: whoever registers for a kind of device runs its stretches, and nobody else changes."""

import copy
import inspect

import pytest
import torch
from torch import nn

from hush.sparse import accelerate, engine_calls, register_backend
from hush.sparse.backend import Backend, Forward, Program, backend_for
from hush.sparse.cpu import CpuBackend, CpuProgram
from hush.sparse.gradients import dense_chain

from .conftest import assert_near


class DenseProgram:
    """Runs on torch and writes its calls down. `saved` is φ(h) of the first layer, as bytes."""

    row_gradients, takes_updates = True, False

    def __init__(self, backend, weights, biases, phis):
        self.backend, self.weights, self.biases, self.phis = backend, weights, biases, phis

    def infer(self, h):
        self.backend.calls.append("infer")
        return dense_chain(h, self.weights, self.biases, self.phis), 0

    def forward(self, h):
        self.backend.calls.append("forward")
        self.h = h
        out = dense_chain(h, self.weights, self.biases, self.phis).detach()
        return Forward(out, h.detach().clone().view(torch.uint8).flatten(), 0, self)

    def first_activations(self, saved, batch):
        return self.phis[0](saved.view(torch.float32).view(batch, -1))

    def backward(self, grad, saved, want_h, plan):
        self.backend.calls.append("backward")
        with torch.enable_grad():
            tensors = [self.h, *self.weights, *(b for b in self.biases if b is not None)]
            tensors = [t.detach().requires_grad_() for t in tensors]
            n = len(self.weights)
            rest = iter(tensors[n + 1 :])
            biases = [None if b is None else next(rest) for b in self.biases]
            out = dense_chain(tensors[0], tensors[1 : n + 1], biases, self.phis)
            found = torch.autograd.grad(out, tensors, grad)
        for kept in plan._kept:
            kept.copy_(next(g for g in found[1:] if g.shape == kept.shape))
        return found[0] if want_h else None


class DenseBackend(CpuBackend):
    name = "dense"

    def __init__(self):
        self.calls = []

    def compile(self, weights, biases, phis):
        return DenseProgram(self, list(weights), list(biases), list(phis))


@pytest.fixture
def dense_backend():
    before, backend = backend_for(torch.empty(0)), DenseBackend()
    register_backend("cpu", backend)
    yield backend
    register_backend("cpu", before)


def test_another_backend_takes_over_without_its_callers_noticing(dense_backend):
    plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    fast, x, kernels = accelerate(copy.deepcopy(plain)), torch.randn(4, 6), engine_calls()
    with torch.no_grad():
        assert_near(fast(x), plain(x))
    for net in (plain, fast):
        net(x).square().sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad)
    assert dense_backend.calls == ["infer", "infer", "forward", "forward", "backward", "backward"]
    assert engine_calls() == kernels


def test_another_backend_runs_the_zeros_of_a_gradient_too(dense_backend, by_gradient):
    plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    fast, x, kernels = accelerate(copy.deepcopy(plain)), torch.randn(4, 6, requires_grad=True), engine_calls()
    found = []
    for net in (plain, fast):
        found.append(torch.autograd.grad(net(x).square().sum(), [x, *net.parameters()]))
    for a, e in zip(*reversed(found), strict=True):
        assert_near(a, e)
    assert dense_backend.calls == ["forward", "backward"] * 2
    assert engine_calls() == kernels


def test_without_a_backend_torch_runs(dense_backend):
    register_backend("cpu", None)
    plain = nn.Sequential(nn.ReLU(), nn.Linear(5, 3))
    x = torch.randn(4, 5)
    assert torch.equal(accelerate(copy.deepcopy(plain))(x), plain(x))
    assert dense_backend.calls == []


@pytest.mark.parametrize(("kind", "protocol"), [(CpuProgram, Program), (CpuBackend, Backend)])
def test_the_processors_backend_has_what_the_protocol_names(kind, protocol):
    names = [n for n, f in vars(protocol).items() if inspect.isfunction(f) and not n.startswith("_")]
    assert names
    for name in names:
        assert list(inspect.signature(getattr(kind, name)).parameters) == list(
            inspect.signature(getattr(protocol, name)).parameters
        )
