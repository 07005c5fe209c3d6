"""Two processes on this machine: gradients are averaged as DDP does for the plain model."""

import copy
import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hush.nn as hn
from hush.sparse import accelerate


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


def _worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), HUSH_CROSSOVER="always")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
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
    finally:
        dist.destroy_process_group()


def test_ddp_trains_as_the_plain_model_does():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(_worker, args=(port,), nprocs=2)
