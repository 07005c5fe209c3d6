"""Layers larger than L2, whose samples are listed by one thread and multiplied by all, against float64."""

import itertools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from hush.sparse import Activation
from hush.sparse.backend import backend_for
from hush.sparse.functional import chain

from .conftest import assert_near

PHI = Activation.crelu(0.5, 0.8)
# (inputs, …, outputs): more than one block of rows, tails in every dimension, a layer without outputs
WIDTHS = [(700, 333), (320, 330, 340), (2100, 65, 1700, 3), (40, 3000, 7), (3000, 0)]


def _layers(widths, density=0.3):
    g = torch.Generator().manual_seed(len(widths))
    weights = [torch.randn(o, i, generator=g) / (density * i) ** 0.5 for i, o in itertools.pairwise(widths)]
    biases = [torch.randn(w.shape[0], generator=g) if k % 2 else None for k, w in enumerate(weights)]
    return weights, biases


def _dense(h, weights, biases):
    for w, b in zip(weights, biases, strict=True):
        h = F.linear((h - 0.5).clamp(0.0, 0.8), w, b)
    return h


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("batch", [8, 9, 70])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_a_chain_and_its_gradients(widths, batch, threads):
    torch.set_num_threads(threads)
    weights, biases = _layers(widths)
    h = torch.randn(batch, widths[0], generator=torch.Generator().manual_seed(batch))
    exact = [t.double().requires_grad_() for t in (h, *weights)]
    expected = _dense(exact[0], exact[1:], [None if b is None else b.double() for b in biases])
    given = [t.clone().requires_grad_() for t in (h, *weights)]
    actual = chain(given[0], given[1:], biases, [PHI] * len(weights))
    assert_near(actual.detach(), expected.detach(), 1e-5)
    seed = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    expected.backward(seed.double())
    actual.backward(seed)
    for a, e in zip(given, exact, strict=True):
        assert_near(a.grad, e.grad, 1e-4)


@pytest.mark.parametrize("density", [0.0, 0.002, 0.05, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_read_in_place_and_packed(density, dtype):
    """Few uses of a weight are not worth a copy of it; many are."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 1024, generator=g) * (torch.rand(64, 1024, generator=g) < density)
    weight = torch.randn(1024, 530, generator=g).t().to(dtype)
    out, active = backend_for(x).compile([weight], [None], [Activation.identity()]).infer(x)
    assert active == torch.count_nonzero(x)
    assert_near(out, x.double() @ weight.double().t(), 1e-5)
