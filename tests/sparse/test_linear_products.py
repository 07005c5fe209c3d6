"""The two products of a Linear's backward, by the zeros of ∂L/∂out, against float64."""

import pytest
import torch

from hush.sparse.backend import backend_for
from hush.sparse.linear_products import sparse_products

from .conftest import assert_near

# (batch, outputs, inputs): one, less and more than a vector, tails, a batch that 16-bit sample numbers cannot hold
SHAPES = [(1, 1, 1), (3, 5, 4), (7, 33, 17), (40, 96, 64), (129, 70, 300), (66_000, 9, 3), (0, 6, 5)]


def _drawn(batch, outputs, inputs, density):
    g = torch.Generator().manual_seed(batch + outputs)
    grad = torch.randn(batch, outputs, generator=g) * (torch.rand(batch, outputs, generator=g) < density)
    return grad, torch.randn(batch, inputs, generator=g), torch.randn(outputs, inputs, generator=g)


def _error(actual, exact):
    return (actual.double() - exact).abs().max().item() if exact.numel() else 0.0


@pytest.fixture(autouse=True, params=[1, 2], ids=["one thread", "two threads"])
def _threads(request, _two_threads):
    torch.set_num_threads(request.param)


@pytest.mark.parametrize(
    ("shape", "density"), [(s, d) for s in SHAPES for d in (0.0, 0.1, 1.0) if s[0] < 10_000 or d == 0.1], ids=str
)
def test_both_products_are_as_near_to_float64_as_dense_ones(shape, density):
    for turned in (False, True):
        _check_both(shape, density, turned)


def _check_both(shape, density, turned):
    grad, x, weight = _drawn(*shape, density)
    weight = weight.t().contiguous().t() if turned else weight
    found = sparse_products(backend_for(x), grad, x, weight, want_bias=True)
    assert found.active == torch.count_nonzero(grad)
    for actual, dense, exact in (
        (found.grad_bias, grad.sum(0), grad.double().sum(0)),
        (found.grad_x, grad @ weight, grad.double() @ weight.double()),
        (found.grad_weight, grad.t() @ x, grad.double().t() @ x.double()),
    ):
        assert_near(actual, exact, 1e-5)
        scale = exact.abs().max().item() if exact.numel() else 0.0
        # Sums are taken one after the other and not in blocks: at 66,000 samples that costs a digit.
        assert _error(actual, exact) <= 20 * _error(dense, exact) + 1e-6 * scale
    if min(weight.shape) > 1:
        assert found.grad_weight.stride() == weight.stride()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_product_without_the_other(shape):
    grad, x, weight = _drawn(*shape, 0.2)
    both = sparse_products(backend_for(x), grad, x, weight, want_bias=True)
    only_x, only_weight = (
        sparse_products(backend_for(x), grad, *given, want_bias=True) for given in ((None, weight), (x, None))
    )
    assert torch.equal(only_weight.grad_bias, both.grad_bias)
    assert_near(only_x.grad_bias, both.grad_bias)
    assert sparse_products(backend_for(x), grad, x, weight).grad_bias is None
    assert only_x.grad_weight is None
    assert only_weight.grad_x is None
    assert only_x.active == only_weight.active == both.active
    assert torch.equal(only_x.grad_x, both.grad_x)
    assert torch.equal(only_weight.grad_weight, both.grad_weight)


def test_strided_gradients_and_inputs():
    grad, x, weight = _drawn(12, 20, 16, 0.3)
    wide = torch.zeros(12, 40)
    wide[:, ::2] = grad
    for g, y in ((wide[:, ::2], x), (grad.t().contiguous().t(), x.t().contiguous().t()), (grad, x[:1].expand(12, 16))):
        found = sparse_products(backend_for(x), g, y, weight)
        assert_near(found.grad_x, g.double() @ weight.double())
        assert_near(found.grad_weight, g.double().t() @ y.double())


def test_nan_and_infinite_gradients_go_where_dense_arithmetic_takes_them():
    grad, x, weight = _drawn(12, 20, 16, 0.3)
    grad[3, 4], grad[5, 6] = float("nan"), float("inf")
    found = sparse_products(backend_for(x), grad, x, weight, want_bias=True)
    products = ((found.grad_x, grad @ weight), (found.grad_weight, grad.t() @ x), (found.grad_bias, grad.sum(0)))
    for actual, expected in products:
        assert torch.equal(actual.isnan(), expected.isnan())
        assert torch.equal(actual.isinf(), expected.isinf())
