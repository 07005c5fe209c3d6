"""Two processes on this machine: they agree on every threshold, and on those of one process with both halves."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import hush
from tests.nn.holding.layers import batches, network, sgd, take_step, thresholds


def _worker(rank, meeting):
    torch.set_num_threads(1)
    alone = network()
    hold_alone = hush.hold(alone, 0.9, window=5)
    optimizer = sgd(alone)
    data = batches(12, 32)
    for x in data:
        take_step(alone, optimizer, x)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    try:
        model = network()
        if rank == 1:
            model[1].threshold = 0.3  # the first process's counts
        hold = hush.hold(model, 0.9, window=5)
        shared = DistributedDataParallel(model)
        optimizer = sgd(model)
        model[1].threshold = 1.0
        for x in data:
            take_step(shared, optimizer, x.chunk(2)[rank])
        mine = torch.tensor(thresholds(model), dtype=torch.float64)
        both = [torch.zeros_like(mine) for _ in range(2)]
        dist.all_gather(both, mine)
        assert torch.equal(both[0], both[1])
        assert thresholds(model) == pytest.approx(thresholds(alone), rel=1e-4)
        assert [row.dead for row in hold.report().layers] == [row.dead for row in hold_alone.report().layers]

        loose = network()
        hush.hold(loose, 0.9, sync=False)
        take_step(loose, sgd(loose), data[rank])
        mine = torch.tensor(thresholds(loose), dtype=torch.float64)
        dist.all_gather(both, mine)
        assert not torch.equal(both[0], both[1])

        apart = network()
        apart[1].threshold = 1.0 + rank
        hush.hold(apart, 0.9)
        take_step(apart, sgd(apart), data[rank])
        mine = torch.tensor(thresholds(apart), dtype=torch.float64)
        dist.all_gather(both, mine)
        assert torch.equal(both[0], both[1])
        dist.barrier()  # neither leaves while the other still listens
    finally:
        dist.destroy_process_group()


def test_processes_agree(tmp_path):
    mp.spawn(_worker, args=(tmp_path / "meeting",), nprocs=2)
