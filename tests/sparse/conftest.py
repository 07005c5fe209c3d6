"""Shared pieces of the sparse tests: dense float64 torch is the oracle throughout."""

import pytest
import torch

from hush.sparse import Activation, crossover, lone_linear
from hush.sparse.activation import Kind

ACTIVATIONS = {
    "relu": Activation.relu(),
    "shifted_relu": Activation.shifted_relu(0.7),
    "crelu": Activation.crelu(0.5, 0.8),
    "soft_threshold": Activation.soft_threshold(0.6),
    "cst": Activation.cst(0.6, 0.9),
    "fatrelu": Activation.fatrelu(0.4),
}
# What only the kernels of chains know: thresholds and clips in units of a sample's own root mean square.
RELATIVE = {
    "relative_relu": Activation(Kind.ONE_SIDED, 0.7, relative=True),
    "relative_crelu": Activation(Kind.ONE_SIDED, 0.4, 0.75, relative=True),
    "relative_soft_threshold": Activation(Kind.ODD, 0.6, relative=True),
    "relative_cst": Activation(Kind.ODD, 0.5, 0.7, relative=True),
    "relative_crelu, constant scale": Activation(Kind.ONE_SIDED, 0.4, 0.75, relative=True, through_scale=False),
}
OF_CHAINS = ACTIVATIONS | RELATIVE


@pytest.fixture(autouse=True)
def _sparse_always(monkeypatch):
    """No timing decides what a test runs."""
    monkeypatch.setenv("HUSH_CROSSOVER", "always")
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def only_by_gradient(width: int, batch: int, training: bool, turns: bool, by_gradient: bool = False) -> float:
    """In place of `crossover.limit`: nobody leaves out zeros of what it reads, everybody those of ∂L/∂out."""
    return 1.0 if by_gradient else -1.0


@pytest.fixture
def by_gradient(monkeypatch):
    monkeypatch.setattr(crossover, "limit", only_by_gradient)


@pytest.fixture
def products(monkeypatch):
    """The calls of the sparse products: (has x, has weight) of each."""
    calls, real = [], lone_linear.sparse_products

    def counted(backend, grad, x, weight, ask_update=None, *, want_bias=False):
        calls.append((x is not None, weight is not None))
        return real(backend, grad, x, weight, ask_update, want_bias=want_bias)

    monkeypatch.setattr(lone_linear, "sparse_products", counted)
    return calls


@pytest.fixture(params=ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def phi(request):
    return request.param


@pytest.fixture(params=OF_CHAINS.values(), ids=OF_CHAINS.keys())
def chain_phi(request):
    return request.param


def assert_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5, floor: float = 1e-12) -> None:
    """|actual − expected| ≤ tolerance · max|expected| + floor, NaN where NaN is."""
    assert actual.shape == expected.shape
    if expected.numel() == 0:
        return
    finite = expected.isfinite()
    assert torch.equal(actual.isnan(), expected.isnan())
    scale = expected[finite].abs().max().item() if finite.any() else 0.0
    torch.testing.assert_close(
        actual.double(), expected.double(), rtol=0, atol=tolerance * scale + floor, equal_nan=True
    )
