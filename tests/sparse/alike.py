"""A plain model and its accelerated twin: what the tests of whole models ask of them."""

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hush.nn as hn
import hush.sparse

from .conftest import assert_near


def mlp(depth: int = 3, width: int = 24, make: Callable[[], nn.Module] = lambda: hn.CReLU(0.1, 0.9)) -> nn.Sequential:
    """12 inputs, 5 outputs, `depth` activations."""
    layers: list[nn.Module] = [nn.Linear(12, width)]
    for _ in range(depth - 1):
        layers += [make(), nn.Linear(width, width)]
    return nn.Sequential(*layers, make(), nn.Linear(width, 5))


def twins(model: nn.Module, **options: Any) -> tuple[nn.Module, nn.Module]:
    """The model, and an accelerated copy of it."""
    return model, hush.sparse.accelerate(copy.deepcopy(model), **options)


@contextmanager
def engine_runs() -> Iterator[None]:
    """Fails where no kernel ran: two plain models are always alike."""
    before = hush.sparse.engine_calls()
    yield
    assert hush.sparse.engine_calls() > before, "no kernel ran"


def assert_alike(
    plain: nn.Module, fast: nn.Module, x: Tensor, run: Callable[[nn.Module, Tensor], Tensor] | None = None
):
    """Same output, same gradients of the input and of every parameter, None where None is."""
    results = []
    for model in (plain, fast):
        model.zero_grad()
        y = x.detach().clone().requires_grad_()
        out = model(y) if run is None else run(model, y)
        (out.square().sum() + out.sin().sum()).backward()
        results.append((out.detach(), y.grad))
    for expected, actual in zip(*results, strict=True):
        assert (expected is None) == (actual is None)
        if expected is not None:
            assert_near(actual, expected, 1e-4, 1e-7)
    assert_same_gradients(plain, fast)


def assert_same_gradients(plain: nn.Module, fast: nn.Module) -> None:
    expected, actual = dict(plain.named_parameters()), dict(fast.named_parameters())
    assert list(expected) == list(actual)
    for name, e in expected.items():
        assert (e.grad is None) == (actual[name].grad is None), name
        if e.grad is not None:
            assert_near(actual[name].grad, e.grad, 1e-4, 1e-7)


def assert_same_parameters(plain: nn.Module, fast: nn.Module) -> None:
    for e, a in zip(plain.parameters(), fast.parameters(), strict=True):
        assert_near(a.detach(), e.detach(), 1e-4, 1e-7)


def assert_edit_is_seen(plain: nn.Module, fast: nn.Module, x: Tensor, edit: Callable[[nn.Module], Any]):
    assert_alike(plain, fast, x)
    for model in (plain, fast):
        torch.manual_seed(5)
        edit(model)
    assert_alike(plain, fast, x)


def assert_travels(plain: nn.Module, fast: nn.Module, x: Tensor):
    """Copies, what comes out of a file, and what is scripted, compiled, traced or exported compute the same;
    so does the model when it is decelerated."""
    assert_alike(plain, copy.deepcopy(fast), x)
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)
    assert_near(torch.load(file, weights_only=False)(x), plain(x))
    with torch.no_grad():
        with pytest.warns(DeprecationWarning, match="jit"):
            scripted = torch.jit.script(fast)
        assert_near(scripted(x), plain(x))
        assert_near(torch.compile(fast, backend="aot_eager", fullgraph=True)(x), plain(x))
        assert_near(torch.fx.symbolic_trace(fast)(x), plain(x))
        assert_near(torch.export.export(fast, (x,)).module()(x), plain(x))
    hush.sparse.decelerate(fast)
    assert "forward" not in fast.__dict__
    assert_alike(plain, fast, x)


def assert_left_to_torch(plain: nn.Module, fast: nn.Module, x: Tensor):
    """Autocast, checkpoints, float64, an input by its name, a frozen copy, and no samples."""
    outs = []
    for model in (plain, fast):
        with torch.autocast("cpu", torch.bfloat16):
            outs.append(model(x))
        model.zero_grad()
        checkpoint(model, x, use_reentrant=False).square().sum().backward()
        assert_near(model(x=x), plain(x))
    assert torch.equal(*outs)
    assert_same_gradients(plain, fast)
    assert_alike(copy.deepcopy(plain).double(), copy.deepcopy(fast).double(), x.double())
    frozen = hush.sparse.accelerate(copy.deepcopy(plain), frozen=True)
    with torch.no_grad():
        assert_near(frozen(x), plain(x))
        assert_near(fast(x[:0]), plain(x[:0]))
