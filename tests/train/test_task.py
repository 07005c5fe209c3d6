import copy
import dataclasses

import pytest
import torch
from torch import nn

pytest.importorskip("lightning")

from hush.train import TrainConfig
from hush.train.network import build
from hush.train.task import Task, clip_layers_


def _with_gradients(scale: float) -> nn.Module:
    model = build(TrainConfig(depth=3, width=20, v_prime=0.7), (1, 8, 8), 10)
    (scale * model(torch.randn(5, 64, generator=torch.Generator().manual_seed(0))).square().sum()).backward()
    return model


def test_layers_are_clipped_one_by_one_as_torch_clips_a_whole() -> None:
    model = _with_gradients(1.0)
    expected = copy.deepcopy(model)
    for mine, theirs in zip(expected.modules(), model.modules(), strict=True):
        for p, q in zip(mine.parameters(recurse=False), theirs.parameters(recurse=False), strict=True):
            p.grad = q.grad.clone()
        if list(mine.parameters(recurse=False)):
            nn.utils.clip_grad_norm_(mine.parameters(), 0.1)
    assert clip_layers_(model, 0.1) is None
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-7)


def test_small_gradients_are_left_alone() -> None:
    model = _with_gradients(1e-12)
    before = [p.grad.clone() for p in model.parameters()]
    clip_layers_(model, 0.1)
    assert all(torch.equal(p.grad, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_gradient_that_is_not_finite_is_named_and_kept() -> None:
    model = _with_gradients(1.0)
    model.layer2.weight.grad[0, 0] = float("inf")
    model.layer1.bias.grad[0] = float("nan")
    assert clip_layers_(model, 0.1) == 2
    assert torch.isinf(model.layer2.weight.grad[0, 0])


def test_schedule() -> None:
    config = TrainConfig(depth=2, width=20, v_prime=0.7, schedule="cosine", warmup=10)
    task = Task(config, build(config, (1, 8, 8), 10), steps=110)
    assert [task._rate(step) for step in (0, 4, 9)] == [0.1, 0.5, 1.0]
    assert task._rate(10) == 1.0
    assert task._rate(60) == pytest.approx(0.5)
    assert task._rate(110) == pytest.approx(0.0)

    # Three falls of 110 steps, the first of them the one above, the others half and a quarter of it.
    again = Task(dataclasses.replace(config, restarts=2), build(config, (1, 8, 8), 10), steps=330)
    first = [task._rate(step) for step in range(110)]
    assert [again._rate(step) for step in range(330)] == [share * rate for share in (1.0, 0.5, 0.25) for rate in first]
    assert again._rate(330) == pytest.approx(0.0)


def test_the_seed_draws_the_network() -> None:
    config = TrainConfig(depth=2, width=20, v_prime=0.7)
    one, same, other = (build(c, (1, 8, 8), 10) for c in (config, config, config.with_seed(1)))
    assert torch.equal(one.layer2.weight, same.layer2.weight)
    assert not torch.equal(one.layer2.weight, other.layer2.weight)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("engine", ["sparse", "dense"])
def test_the_head_steps_by_its_own_rate(engine: str, optimizer: str) -> None:
    """As torch's own optimizer with two groups does, whether the body's step is fused or not."""
    config = TrainConfig(
        depth=3, width=20, v_prime=0.7, engine=engine, optimizer=optimizer, lr=1e-2, head_rate=3.0, warmup=0
    )
    model, plain = build(config, (1, 8, 8), 10), build(config, (1, 8, 8), 10)
    made = Task(config, model, steps=5).configure_optimizers()["optimizer"]
    rest = [p for name, p in plain.named_parameters() if not name.startswith("head")]
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    expected = kind([{"params": rest}, {"params": plain.head.parameters(), "lr": 3e-2}], lr=1e-2, weight_decay=0.0)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    for network, steps in ((model, made), (plain, expected)):
        network(x).square().mean().backward()
        steps.step()
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
