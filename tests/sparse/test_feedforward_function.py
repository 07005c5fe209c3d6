"""`hush.sparse.feedforward` on tensors, against dense float64."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from hush.sparse import Activation, engine_calls, feedforward

from .conftest import assert_near


def _tensors(shape, bias=True, dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    drawn = [torch.randn(*s, generator=g, dtype=torch.float64) for s in (shape, (40, 12), (40,), (7, 40), (7,))]
    drawn = [t.to(dtype).requires_grad_() for t in drawn]
    return drawn if bias else [t if t.dim() > 1 or t is drawn[0] else None for t in drawn]


def _dense(x, w1, b1, w2, b2, phi):
    return F.linear(phi(F.linear(x, w1, b1)), w2, b2)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", [(33, 12), (2, 5, 12), (0, 12), (12,)], ids=str)
def test_output_and_every_gradient(phi, shape, bias):
    ours = _tensors(shape, bias)
    exact = [None if t is None else t.detach().double().requires_grad_() for t in ours]
    before = engine_calls()
    out, expected = feedforward(*ours, phi), _dense(*exact, phi)
    assert_near(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert engine_calls() == before + 2
    for a, e in zip(ours, exact, strict=True):
        if a is not None:
            assert_near(a.grad, e.grad)


def test_second_derivatives():
    found = []
    for run in (feedforward, _dense):
        tensors = _tensors((9, 12))
        first = torch.autograd.grad(run(*tensors, Activation.relu()).sin().sum(), tensors, create_graph=True)
        sum(g.square().sum() for g in first).backward()
        found.append([t.grad for t in tensors])
    for a, e in zip(*found, strict=True):
        assert_near(a, e, 1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile itself calls something it has deprecated
def test_other_dtypes_and_compiled_code_run_too():
    phi = Activation.crelu(0.5, 0.8)
    double = _tensors((9, 12), dtype=torch.float64)
    assert torch.equal(feedforward(*double, phi), _dense(*double, phi))
    tensors = _tensors((9, 12))
    compiled = torch.compile(lambda *t: feedforward(*t, phi), backend="aot_eager", fullgraph=True)
    compiled(*tensors).sum().backward()
    other = _tensors((9, 12))
    _dense(*other, phi).sum().backward()
    for a, e in zip(tensors, other, strict=True):
        assert_near(a.grad, e.grad)


def test_shapes_that_do_not_fit_are_named():
    x, w1, b1, w2, b2 = _tensors((9, 12))
    with pytest.raises(ValueError, match=r"Layer 0 has a weight of shape \(7, 40\); with 12 inputs"):
        feedforward(x, w2, b2, w1, b1, Activation.relu())
    with pytest.raises(ValueError, match="w1 is torch.bfloat16"), torch.no_grad():
        feedforward(x, w1.bfloat16(), b1, w2, b2, Activation.relu())
