"""torch.compile: the graph reads thresholds as tensors, and is compiled no more than twice."""

import pytest
import torch
from torch._dynamo.utils import counters

import hush
from tests.nn.holding.layers import ACTIVATIONS, batches, network, sgd, take_step, thresholds


@pytest.mark.parametrize(("name", "backend"), [("crelu", "aot_eager"), ("cst", "eager")])
def test_compiled_as_eager_and_never_compiled_again(name, backend):
    torch.compiler.reset()
    counters.clear()
    plain, model = network(ACTIVATIONS[name]), network(ACTIVATIONS[name])
    for one in (plain, model):
        hush.hold(one, 0.9)
    fast = torch.compile(model, fullgraph=True, backend=backend)
    one, other = sgd(plain), sgd(model)
    for x in batches(25):
        take_step(plain, one, x)
        take_step(fast, other, x)
    # The first graph meets gauges that know no units yet.
    assert counters["stats"]["unique_graphs"] <= 2
    assert thresholds(model) == pytest.approx(thresholds(plain), rel=1e-5)
    (x,) = batches(1, seed=3)
    torch.testing.assert_close(fast.eval()(x), plain.eval()(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seen_before", [True, False])
def test_compiled_units_come_back_where_an_eager_run_has_shown_the_bias(seen_before):
    torch.compiler.reset()
    counters.clear()
    plain, model = network(), network()
    for one in (plain, model):
        with torch.no_grad():
            one[0].bias[7] = -40.0
        hold = hush.hold(one, 0.9, window=5, revive="bias")
    if seen_before:
        model.eval()(batches(1)[0])
        model.train()
    fast = torch.compile(model, fullgraph=True, backend="eager")
    one, other = sgd(plain), sgd(model)
    for x in batches(12):
        take_step(plain, one, x)
        take_step(fast, other, x)
    assert counters["stats"]["unique_graphs"] <= 3
    if seen_before:
        torch.testing.assert_close(model[0].bias, plain[0].bias, rtol=1e-4, atol=1e-5)
        assert hold.report().layers[0].revived == 1
    else:
        assert model[0].bias[7] == -40.0
        assert "no bias in front" in str(hold.report())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_and_derivatives_at_the_kinks(name, dtype):
    act = ACTIVATIONS[name]()
    act.threshold = 0.75
    edges = torch.tensor([0.0, 0.75, 1.75, 2.0, 1.0, 0.5, float("inf"), float("nan")], dtype=dtype)
    x = torch.cat([edges, -edges])
    found = []
    for moving in (False, True):
        y = x.clone().requires_grad_()
        if moving:
            hush.hold(act, 0.9)
            act._is_moving = lambda: True
        out = act(y)
        out.nan_to_num(0.0, 0.0, 0.0).sum().backward()
        found.append((out.detach(), y.grad[~x.isnan()]))
    (out, gradient), (moved, moved_gradient) = found
    torch.testing.assert_close(moved, out, rtol=0.0, atol=0.0, equal_nan=True)
    torch.testing.assert_close(moved_gradient, gradient, rtol=0.0, atol=0.0)
    assert not (moved.signbit() & (moved == 0.0)).any()
