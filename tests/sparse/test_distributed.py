"""Two processes on this machine: gradients are averaged as DDP does for the plain model."""

import copy
import os

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hush.nn as hn
from hush.sparse import accelerate
from tests.processes import in_two_processes


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), hn.CReLU(0.1, 0.9), nn.Linear(20, 20), hn.CReLU(0.1, 0.9), nn.Linear(20, 3))


def _train(model, rank, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 6, generator=g)).square().mean().backward()
        optimizer.step()


def _plain_and_accelerated(rank):
    os.environ["HUSH_CROSSOVER"] = "always"
    plain, fast = _model(), accelerate(_model())
    for model in (plain, fast):
        _train(DistributedDataParallel(model), rank)
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)
    late = DistributedDataParallel(_model())  # nothing of the weights changes, so it may come first
    accelerate(late)
    _train(late, rank)
    for a, e in zip(late.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)
    fused = _model()
    with pytest.raises(ValueError, match="no update can be fused"):
        accelerate(fused, optimizer=torch.optim.SGD(fused.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="must lie as torch has them"):
        accelerate(fused, layout="input_major")
    twin = copy.deepcopy(fast)
    assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), fast.parameters(), strict=True))


def test_ddp_trains_as_the_plain_model_does(tmp_path):
    in_two_processes(tmp_path, _plain_and_accelerated)
