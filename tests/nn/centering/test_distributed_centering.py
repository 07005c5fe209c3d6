"""Two processes, each with its share of every batch, take the steps of one process with all of it."""

import functools
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hush
import hush.nn as hn
from tests.processes import in_two_processes

STEPS = 3


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), hn.CReLU(0.1, 0.9), nn.Linear(20, 20), hn.CReLU(0.1, 0.9), nn.Linear(20, 3))


def _batches() -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    # The two halves have different means, so that each one's own would show.
    return [torch.randn(16, 6, generator=g) + torch.arange(16.0)[:, None] / 8 for _ in range(STEPS)]


def _train(model: nn.Module, share: slice) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, eps=1e-3)
    for x in _batches():
        optimizer.zero_grad()
        model(x[share]).square().mean().backward()
        optimizer.step()


def _in_halves(rank: int, expected: list[torch.Tensor]) -> None:
    os.environ["HUSH_CROSSOVER"] = "always"
    for accelerated in (False, True):
        model = _model()
        hush.center_gradients(model)
        if accelerated:
            hush.sparse.accelerate(model, adaptive=False)
        _train(DistributedDataParallel(model), slice(8 * rank, 8 * rank + 8))
        for a, e in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(a.detach(), e, rtol=1e-4, atol=1e-5)


def test_two_processes_step_as_one(tmp_path: Path) -> None:
    model = _model()
    hush.center_gradients(model)
    _train(model, slice(None))
    expected = [p.detach().clone() for p in model.parameters()]
    in_two_processes(tmp_path, functools.partial(_in_halves, expected=expected))
