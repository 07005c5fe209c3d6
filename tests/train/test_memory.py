import math

import pytest
import torch

from hush.train import RunError, TrainConfig
from hush.train.memory import check_memory, needed_bytes
from hush.train.network import build
from hush.train.network_size import count_parameters


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (TrainConfig(depth=3, width=20, v_prime=0.7), (1, 8, 8)),
        (TrainConfig(depth=2, width=7, v_prime=0.7, shrink=2), (1, 4, 4)),
        (TrainConfig(depth=3, width=6, v_prime=0.7, arch="cnn"), (1, 8, 8)),
        (TrainConfig(depth=3, width=6, v_prime=0.7, arch="cnn", patch=2), (4, 4, 4)),
        (TrainConfig(depth=3, width=6, v_prime=0.7, arch="cnn", shrink=2, patch=2), (4, 2, 2)),
        (TrainConfig(depth=3, width=6, v_prime=0.7, arch="cnn", patch=2, pool="none"), (4, 4, 4)),
        (TrainConfig(depth=3, width=6, arch="residual_mlp", branch_scale="learned"), (1, 8, 8)),
        (TrainConfig(depth=2, width=6, arch="residual_mlp", norm="layer", hidden=11), (1, 8, 8)),
        (TrainConfig(depth=6, width=4, arch="resnet", branch_scale="learned"), (1, 8, 8)),
        (TrainConfig(depth=3, width=4, arch="resnet", norm="none", activation="relu"), (1, 8, 8)),
        (TrainConfig(depth=2, width=8, arch="gpt", branch_scale="learned", context=5, norm="layer"), (5,)),
        (TrainConfig(depth=2, width=8, arch="gpt", gated=True, hidden=20, activation="gelu"), (128,)),
    ],
)
def test_the_count_is_that_of_the_network(config: TrainConfig, shape: tuple[int, ...]) -> None:
    assert count_parameters(config) == sum(p.numel() for p in build(config, shape, 10).parameters())


def test_what_the_optimizer_keeps_counts_too() -> None:
    sizes = {
        "sgd": needed_bytes(TrainConfig(depth=4, width=300, v_prime=0.7, optimizer="sgd")),
        "momentum": needed_bytes(TrainConfig(depth=4, width=300, v_prime=0.7, optimizer="sgd", momentum=0.9)),
        "adamw": needed_bytes(TrainConfig(depth=4, width=300, v_prime=0.7, optimizer="adamw")),
    }
    weights = 4 * count_parameters(TrainConfig(depth=4, width=300, v_prime=0.7))
    assert sizes["momentum"] - sizes["sgd"] == sizes["adamw"] - sizes["momentum"] == weights
    model = build(TrainConfig(depth=4, width=300, v_prime=0.7), (1, 8, 8), 10)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 64)).sum().backward()
    optimizer.step()
    held = [*model.parameters(), *(p.grad for p in model.parameters())]
    held += [v for s in optimizer.state.values() for v in s.values() if v.dim()]
    assert sizes["adamw"] >= sum(t.numel() * t.element_size() for t in held)
    assert math.isclose(sizes["adamw"], sum(t.numel() * t.element_size() for t in held), rel_tol=0.2)


def test_too_large_a_network_is_refused_with_its_size() -> None:
    config = TrainConfig(depth=30, width=1_000_000, v_prime=0.7)
    with pytest.raises(
        RunError, match=r"width 1000000 have 2.9e\+13 parameters, .* at least 2.3.e\+05 GB; this machine has"
    ):
        check_memory(config)
    check_memory(TrainConfig(depth=30, v_prime=0.7))
    with pytest.raises(RunError, match="this machine has 0.001 GB"):
        check_memory(TrainConfig(depth=30, v_prime=0.7), available=1_000_000)
