"""Every path through an accelerated model gives what the plain modules give, not only the one that was traced."""

import pytest
import torch
from torch import nn

import hush.nn as hn
from hush.sparse import accelerate, decelerate

from .alike import assert_alike, engine_runs, mlp, twins
from .conftest import assert_near
from .random_layers import Looking, look


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.e1, self.a1, self.e2 = nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)
        self.a2, self.d1, self.a3, self.d2 = nn.ReLU(), nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64)

    def encode(self, x):
        return self.e2(self.a1(self.e1(x)))

    def decode(self, z):
        return self.d2(self.a3(self.d1(self.a2(z))))

    def forward(self, x):
        return self.decode(self.encode(x))


def test_an_autoencoders_encode_and_decode():
    plain, fast = twins(Autoencoder())
    x, z = torch.randn(32, 64), torch.randn(32, 8)
    assert fast.encode(x).shape == (32, 8)
    with engine_runs():
        assert_alike(plain, fast, x)
        assert_alike(plain, fast, x, lambda m, x: m.encode(x))
        assert_alike(plain, fast, z, lambda m, z: m.decode(z))
    with torch.no_grad():
        assert_near(fast.decode(fast.encode(x)), plain(x))


class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.act1, self.fc1, self.act2 = hn.ShiftedReLU(0.1), nn.Linear(12, 12), hn.ShiftedReLU(0.1)
        self.fc2, self.act3, self.out = nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 5)

    def forward(self, x):
        h = self.fc1(self.act1(x))
        if not self.training or bool(x[0, 0] > 100):
            return self.out(self.act3(h))
        return self.out(self.act3(self.fc2(self.act2(h))))


def test_an_early_exit_in_eval_and_by_the_data():
    plain, fast = twins(EarlyExit())
    x = torch.randn(9, 12)
    far = x.clone()
    far[0, 0] = 101.0
    with engine_runs():
        for inputs in (x, far):
            assert_alike(plain, fast, inputs)
        assert_alike(plain.eval(), fast.eval(), x)


class LayerDrop(nn.Module):
    def __init__(self):
        super().__init__()
        self.acts = nn.ModuleList(hn.CReLU(0.1, 0.9) for _ in range(6))
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(6))
        self.out = nn.Linear(12, 5)

    def forward(self, x):
        for act, layer in zip(self.acts, self.layers, strict=True):
            if not self.training or torch.rand(()) > 0.2:
                x = layer(act(x))
        return self.out(x)


def test_layerdrop_leaves_out_the_same_layers():
    plain, fast = twins(LayerDrop())
    x = torch.randn(9, 12)

    def run(seed):
        def call(model, x):
            torch.manual_seed(seed)
            return model(x)

        return call

    with engine_runs():
        for seed in range(8):
            assert_alike(plain, fast, x, run(seed))


@pytest.mark.parametrize("make", [Autoencoder, EarlyExit, mlp])
def test_every_child_by_itself(make):
    plain, fast = twins(make())
    for (name, a), b in zip(plain.named_modules(), fast.modules(), strict=True):
        if isinstance(a, nn.Linear):
            assert_alike(a, b, torch.randn(4, a.in_features))
        elif name and not list(a.children()):
            assert_alike(a, b, torch.randn(4, 12))


def test_a_slice_of_a_sequential_and_its_children_in_a_loop():
    plain, fast = twins(mlp(4))
    x = torch.randn(7, 12)
    assert_alike(plain, fast, x, lambda m, x: m[:4](x))
    assert_alike(plain, fast, x, lambda m, x: m[3](m[2](m[1](m[0](x)))))
    h = plain[0](x).detach()
    assert_alike(plain, fast, h, lambda m, h: m[2](h))  # without the activation in front of it


@pytest.mark.parametrize("between", [nn.Identity, lambda: nn.Dropout(0.0), lambda: nn.Dropout(0.4), nn.Flatten])
@pytest.mark.parametrize("training", [True, False])
def test_identity_and_dropout_between(between, training):
    plain, fast = twins(nn.Sequential(hn.CReLU(0.1, 0.9), between(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 4)))
    plain.train(training), fast.train(training)

    def run(model, x):
        torch.manual_seed(3)
        return model(x)

    with engine_runs():
        assert_alike(plain, fast, torch.randn(9, 12), run)


class TwoReaders(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.a, self.b, self.out = nn.ReLU(), nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x):
        h = look(self.act(x))
        left = look(self.a(h))
        return self.out(look(self.act(left)) * self.b(h) + self.a(look(self.act(left))))


def test_shared_layers_and_the_gradients_at_what_two_readers_see():
    plain, fast = twins(TwoReaders())
    x, seen = torch.randn(9, 12), []
    with engine_runs():
        assert_alike(plain, fast, x)
    for model in (plain, fast):
        with Looking() as tensors:
            out = model(x.clone().requires_grad_())
        out.square().sum().backward()
        seen.append(tensors)
    for e, a in zip(*seen, strict=True):
        assert_near(a, e)
        assert_near(a.grad, e.grad)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_transformer_encoders_children(norm_first):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    plain, fast = twins(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    x = torch.randn(3, 7, 16)
    with engine_runs():
        assert_alike(plain, fast, x)
    plain.eval(), fast.eval()
    assert_alike(plain, fast, x)
    with torch.no_grad():
        assert_near(fast(x), plain(x))


@pytest.mark.parametrize("form", ["F.relu", "torch.relu", "method", "inplace", "clamp"])
def test_activations_as_functions(form):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(12, 24), nn.Linear(24, 5)

        def forward(self, x):
            h = self.a(x)
            forms = {"F.relu": nn.functional.relu, "torch.relu": torch.relu, "method": torch.Tensor.relu,
                     "inplace": torch.relu_, "clamp": lambda h: h.clamp(min=0.0)}  # fmt: skip
            return self.b(forms[form](h))

    plain, fast = twins(Net())
    assert_alike(plain, fast, torch.randn(9, 12))


class Residual(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.block = nn.Sequential(nn.ReLU(inplace=inplace), nn.Linear(12, 12), nn.ReLU(inplace), nn.Linear(12, 12))

    def forward(self, x):
        return x + self.block(x)


@pytest.mark.parametrize("inplace", [True, False])
def test_an_inplace_relu_changes_what_it_is_given(inplace):
    plain, fast = twins(Residual(inplace))
    x, y = torch.randn(9, 12), torch.randn(9, 12)
    with torch.no_grad():
        given = [x.clone(), x.clone()]
        assert_near(fast(given[0]), plain(given[1]))
        assert torch.equal(given[0], given[1])
    assert_alike(plain, fast, y, lambda m, y: m(y * 1.0))


def test_an_output_edited_in_place():
    plain, fast = twins(mlp())
    assert_alike(plain, fast, torch.randn(9, 12), lambda m, x: m(x).mul_(2.0).add_(x.sum()))


def test_an_intermediate_edited_in_place():
    class Edits(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.a, self.b = hn.ShiftedReLU(0.1), nn.Linear(12, 12), nn.Linear(12, 5)

        def forward(self, x):
            h = self.a(self.act(x))
            h += 1.0
            h[:, 0] = 0.5
            return self.b(torch.relu(h))

    plain, fast = twins(Edits())
    assert_alike(plain, fast, torch.randn(9, 12))


def test_deceleration_gives_the_plain_model_back():
    plain = Autoencoder()
    before = set(plain.__dict__)
    decelerate(accelerate(plain))
    assert set(plain.__dict__) == before
    assert all("forward" not in m.__dict__ for m in plain.modules())
