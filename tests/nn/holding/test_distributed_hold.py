"""Two processes on this machine: they agree on every threshold, and on those of one process with both halves."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hush
import hush.nn as hn
from hush.nn.holding import processes
from tests.nn.holding.layers import batches, network, sgd, take_step, thresholds
from tests.processes import in_two_processes


def _be_impatient(_rank):
    processes.PATIENCE = timedelta(seconds=20)


def _same_everywhere(values):
    mine = torch.tensor(values, dtype=torch.float64)
    both = [torch.zeros_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    return torch.equal(both[0], both[1])


def _as_one_process_with_both_halves(rank):
    data = batches(12, 32)
    alone, model = network(), network()
    for one in (alone, model):
        with torch.no_grad():
            one[0].bias[3] = -30.0
    hold_alone = hush.hold(alone, 0.9, window=5, sync=False, revive="bias")
    optimizer = sgd(alone)
    for x in data:
        take_step(alone, optimizer, x)
    hold = hush.hold(model, 0.9, window=5, revive="bias")
    shared = DistributedDataParallel(model)
    optimizer = sgd(model)
    for x in data:
        take_step(shared, optimizer, x.chunk(2)[rank])
    assert _same_everywhere(thresholds(model))
    assert thresholds(model) == pytest.approx(thresholds(alone), rel=1e-4)
    found, expected = hold.report().layers, hold_alone.report().layers
    assert [(row.dead, row.revived) for row in found] == [(row.dead, row.revived) for row in expected]
    assert model[0].bias[3] > -30.0
    assert _same_everywhere(model[0].bias.tolist())
    torch.testing.assert_close(model[0].bias, alone[0].bias, rtol=1e-4, atol=1e-4)


def _apart_without_sync(rank):
    model = network()
    hush.hold(model, 0.9, sync=False)
    take_step(model, sgd(model), batches(2)[rank])
    assert not _same_everywhere(thresholds(model))


def _begin_as_the_first(rank):
    """Other thresholds here and there, and only the first has gone on from a state: its schedule and waits count."""
    model = network()
    model[1].threshold = 1.0 + rank
    hold = hush.hold(model, 0.9, schedule=hush.ramp(0.5, steps=50), every=3)
    if rank == 0:
        for gauge in hold.gauges:
            gauge.steps, gauge.wait = 20, 2
            gauge.listen()
    optimizer = sgd(model)
    for x in batches(8):
        take_step(model, optimizer, x)
    assert hold.gauges[0].steps == 28
    assert _same_everywhere(thresholds(model))


def _a_layer_that_runs_in_one_process_only(rank):
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.always, self.sometimes = network(), network(seed=5)

        def forward(self, x):
            return self.always(x) + (self.sometimes(x) if rank == 0 else 0.0)

    model = Branching()
    hold = hush.hold(model, 0.9, window=3)
    optimizer = sgd(model)
    for x in batches(7):
        take_step(model, optimizer, x)
    assert _same_everywhere(thresholds(model))
    assert _same_everywhere([row.dead for row in hold.report().layers])
    assert hold.report().layers[3].dead is not None


def _two_holds_of_one_optimizer(rank):
    model = nn.Sequential(network(), nn.Linear(3, 12), hn.CReLU(0.5, 1.0))
    # Other addresses in each process, so that nothing depends on them.
    others = [network() for _ in range(rank * 3)]
    holds = [hush.hold(model[0], 0.9), *(hush.hold(other, 0.5) for other in others), hush.hold(model[1:], 0.8)]
    optimizer = sgd(model)
    for x in batches(5):
        take_step(model, optimizer, x)
    assert _same_everywhere(thresholds(model))
    assert [gauge.moves for gauge in (*holds[0].gauges, *holds[-1].gauges)] == [5, 5, 5]


def _a_state_that_one_process_alone_has(rank):
    model = network()
    hold = hush.hold(model, 0.9)
    optimizer, data = sgd(model), batches(2)
    take_step(model, optimizer, data[0])
    if rank == 1:
        hold.gauges[0].steps = 40
    with pytest.raises(RuntimeError, match=r"2 processes hold '1' together.*alone loaded a state"):
        take_step(model, optimizer, data[1])


def _a_step_that_one_process_leaves_out(rank):
    processes.PATIENCE = timedelta(seconds=1)
    model = network()
    hush.hold(model, 0.9)
    optimizer = sgd(model)
    for x in batches(2):
        take_step(model, optimizer, x)
    if rank == 0:
        with pytest.raises(RuntimeError, match=r"process 0 could not share.*1 s at most.*has left a step out"):
            take_step(model, optimizer, *batches(1))


def test_processes_agree(tmp_path):
    in_two_processes(
        tmp_path,
        _be_impatient,
        _as_one_process_with_both_halves,
        _apart_without_sync,
        _begin_as_the_first,
        _a_layer_that_runs_in_one_process_only,
        _two_holds_of_one_optimizer,
        _a_state_that_one_process_alone_has,
        _a_step_that_one_process_leaves_out,
    )
