import pytest
import torch
from torch import nn

import hush
from tests.helpers import assert_left_as_it_was, snapshot

DESIGN = hush.design("crelu", 0.8, v_prime=0.7, width=40, depth=4)


def train(model: nn.Module, steps: int, x: torch.Tensor) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        model(x).square().sum().backward()
        optimiser.step()


@pytest.fixture
def model() -> nn.Sequential:
    model = hush.nn.mlp(20, 3, DESIGN)
    hush.init_(model, DESIGN, generator=torch.Generator().manual_seed(0))
    return model


X = torch.randn(16, 20, generator=torch.Generator().manual_seed(0))


def test_every_nth_step_with_gradients(model: nn.Sequential) -> None:
    logged = []
    with hush.diagnose.Monitor(model, every=5, log=logged.append) as monitor:
        train(model, 12, X)
        model.eval()(X)
        history = monitor.history
    assert [snapshot.step for snapshot in history] == [0, 5, 10]
    assert logged == history
    assert len(history[0].layers) == 4
    assert all(layer.gradient > 0 for layer in history[0].layers)
    assert abs(history[0].sparsity - 0.8) < 0.1
    assert {"sparsity", "q/phi1", "gradient/phi4", "dead/phi2"} <= set(history[0].scalars())
    assert "step 10: sparsity" in str(history[-1])


def test_same_figures_as_a_diagnosis(model: nn.Sequential) -> None:
    diagnosis = hush.diagnose(model, X, loss=lambda output, _: output.square().sum())
    with hush.diagnose.Monitor(model, every=1) as monitor:
        model(X).square().sum().backward()
    for seen, layer in zip(monitor.history[0].layers, diagnosis.layers, strict=True):
        assert seen.sparsity == layer.sparsity
        assert seen.dead == layer.dead
        assert abs(seen.correlation - layer.correlation) < 1e-6
        assert abs(seen.gradient / 4.0 - layer.gradient) < 1e-4 * layer.gradient  # norm over 16 inputs, not mean


def test_leaves_no_trace(model: nn.Sequential) -> None:
    before = snapshot(model)
    monitor = hush.diagnose.Monitor(model)
    model(X)
    monitor.close()
    assert_left_as_it_was(model, before)


def test_history_is_bounded(model: nn.Sequential) -> None:
    with hush.diagnose.Monitor(model, every=1, keep=3) as monitor:
        train(model, 7, X)
    assert [snapshot.step for snapshot in monitor.history] == [4, 5, 6]


def test_bad_values(model: nn.Sequential) -> None:
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        hush.diagnose.Monitor(model, every=0)
    bare = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="Linear has no activation to read"), hush.diagnose.Monitor(bare):
        bare(torch.ones(1, 2))


def test_functions_are_read_too() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with hush.diagnose.Monitor(model, every=1) as monitor:
        model(torch.randn(3, 4, 8)).sum().backward()
    layer = monitor.history[0].layers[0]
    assert layer.name == "relu()"
    assert layer.gradient > 0.0
