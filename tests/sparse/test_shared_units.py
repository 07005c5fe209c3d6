"""Chains whose samples share their active units: dense products over those, against float64 and against the lists."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import hush
from hush.sparse import Activation, accelerate, chain
from hush.sparse.cpu import CpuBackend, isa

from .test_functional import check

OTHER_SETS = {"avx512": ["avx2", "portable"], "avx2": ["portable"], "portable": []}


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def alike_inputs(batch, width, seed=0, spread=0.05):
    """Inputs that differ by a little: most have the same active units."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(1, width, generator=g) + spread * torch.randn(batch, width, generator=g)


def make_chain(widths, seed=0):
    g = torch.Generator().manual_seed(seed)
    weights = [torch.randn(o, i, generator=g) / (0.3 * i) ** 0.5 for i, o in itertools.pairwise(widths)]
    return weights, [torch.randn(w.shape[0], generator=g) for w in weights]


def shared_layers(saved):
    """Of each layer, how many units the batch shares; 0 where it went by lists. Read off the table of what is saved."""
    table = saved.numpy()[: saved.numel() // 8 * 8].view("uint64")
    return [int(table[4 + 4 * layer + 3]) for layer in range(int(table[2]))]


def program_of(weights, biases, phis):
    """A program, and the memory that it reads, which the caller must keep."""
    laid_out = [w.t().contiguous().t() for w in weights]
    return laid_out, CpuBackend().compile(laid_out, biases, phis)


@pytest.mark.parametrize("widths", [[300, 300, 300, 10], [64, 1, 17, 33], [5, 3, 2], [40, 96, 7, 120]])
def test_output_and_gradients_match_float64(widths, chain_phi, threads):
    weights, biases = make_chain(widths)
    check(alike_inputs(37, widths[0]), weights, biases, [chain_phi] * len(weights))


def test_a_batch_is_its_samples_bit_for_bit(chain_phi):
    """One sample by itself goes by its list, the batch by shared units: the same terms in the same order."""
    weights, biases = make_chain([300, 300, 48, 300, 21])
    _kept, program = program_of(weights, biases, [chain_phi] * 4)
    h = alike_inputs(32, 300)
    assert any(shared_layers(program.forward(h).saved))
    alone = torch.cat([program.infer(row)[0] for row in h.split(1)])
    together, active = program.infer(h)
    assert torch.equal(together, alone)
    assert torch.equal(program.forward(h).out, alone)
    assert active == program.forward(h).active == sum(program.infer(row)[1] for row in h.split(1))


def test_threads_change_no_bit(threads):
    weights, biases = make_chain([120, 120, 120, 120])
    h, phis = alike_inputs(50, 120), [Activation.crelu(0.8, 1.0)] * 3

    def run():
        ours = [t.clone().requires_grad_() for t in [h, *weights, *biases]]
        out = chain(ours[0], ours[1:4], ours[4:], phis)
        out.square().sum().backward()
        return [out, *(t.grad for t in ours)]

    here = run()
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(here, run(), strict=True))


def test_a_chain_changes_between_the_two_ways(threads):
    """Alike and unlike inputs in one batch, and layers whose biases alone decide: some layers share, some do not."""
    weights, biases = make_chain([90, 90, 90, 90, 90, 90])
    biases[1].add_(3.0 * torch.randn(90, generator=torch.Generator().manual_seed(5)))
    weights[1] *= 0.05
    weights[3] *= 6.0
    h = torch.randn(24, 90, generator=torch.Generator().manual_seed(7))
    phis = [Activation.shifted_relu(1.2)] * 5
    _kept, program = program_of(weights, biases, phis)
    shared = shared_layers(program.forward(h).saved)
    assert 0 in shared
    assert any(shared)
    check(h, weights, biases, phis)


def test_what_is_saved_comes_back(threads):
    weights, biases = make_chain([70, 50, 30])
    h, phis = alike_inputs(19, 70), [Activation.cst(0.3, 0.9)] * 2
    _kept, program = program_of(weights, biases, phis)
    saved = program.forward(h).saved
    assert all(shared_layers(saved))
    first = phis[0](h)
    assert torch.equal(program.first_activations(saved, 19), first)
    second = phis[1](nn.functional.linear(first.double(), weights[0].double(), biases[0].double()))
    means = program.mean_inputs(saved, 19)
    torch.testing.assert_close(means[0].double(), first.double().mean(0), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(means[1].double(), second.mean(0), rtol=1e-5, atol=1e-6)


def test_two_forwards_save_the_same_bytes(threads):
    weights, biases = make_chain([70, 50, 30])
    _kept, program = program_of(weights, biases, [Activation.crelu(0.3, 0.9)] * 2)
    h = alike_inputs(19, 70)
    assert torch.equal(program.forward(h).saved, program.forward(h).saved)


def test_a_nan_stays_in_its_sample():
    weights, biases = make_chain([60, 60, 60])
    h = alike_inputs(16, 60)
    clean = chain(h, weights, biases, [Activation.relu()] * 2)
    h[3, 7] = float("nan")
    out = chain(h, weights, biases, [Activation.relu()] * 2)
    assert out[3].isnan().all()
    assert torch.equal(out[torch.arange(16) != 3], clean[torch.arange(16) != 3])


def _network(seed=0):
    design = hush.design("crelu", 0.8, v_prime=0.6, width=50, depth=12)
    model = hush.nn.mlp(20, 4, design)
    hush.init_(model, design, generator=torch.Generator().manual_seed(seed))
    return model.double()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "decay": lambda p: torch.optim.SGD(p, lr=1e-2, weight_decay=1e-2),
    "nesterov": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.0),
    "adamw with decay": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=1e-2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("centred", [False, True])
def test_fused_steps_follow_float64(name, centred, threads):
    """Twelve layers deep, where inputs share their units: beside torch's own in float64 and float32.

    Thirty steps on one thread; ten on two, which wait for each other when other tests run beside them.
    """
    exact, single, fast = _network(), _network().float(), _network().float()
    optimizers = []
    for model in (exact, single, fast):
        if centred:
            hush.center_gradients(model)
        optimizers.append(OPTIMIZERS[name](model.parameters()))
    accelerate(fast, optimizer=optimizers[2], adaptive=False)
    # Of these inputs no pre-activation comes closer to a kink than 2e-6 in float64; others come within rounding of one.
    g = torch.Generator().manual_seed(15)
    for _ in range(30 if threads == 1 else 10):
        x = torch.randn(24, 20, generator=g)
        y = torch.randint(4, (24,), generator=g)
        for model, optimizer in zip((exact, single), optimizers, strict=False):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(next(model.parameters()).dtype)), y).backward()
            optimizer.step()
        hush.sparse.step(fast, nn.functional.cross_entropy(fast(x), y))
    # A unit at its threshold may be decided otherwise in float32: then torch's own float32 is off by as much.
    pairs = zip(fast.parameters(), single.parameters(), exact.parameters(), strict=True)
    for ours, theirs, true in pairs:
        off, usual = (float((p - true).detach().abs().max()) for p in (ours, theirs))
        assert off <= 1e-5 + 2.0 * usual


def test_adamw_leaves_weights_of_units_that_were_never_active_alone():
    """Their moments stay zero, and the weights keep every bit, as with torch."""
    design = hush.design("crelu", 0.9, v_prime=0.5, width=64, depth=8)
    model = hush.nn.mlp(10, 3, design)
    hush.init_(model, design, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    accelerate(model, optimizer=optimizer, adaptive=False)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    x = alike_inputs(16, 10, spread=1e-3)
    for _ in range(3):
        hush.sparse.step(model, model(x).square().sum())
    moved = [p.ne(before[name]) for name, p in model.named_parameters() if p.dim() == 2]
    assert any(m.any() for m in moved)
    assert not all(m.all() for m in moved)
    for name, p in model.named_parameters():
        state = optimizer.state[p]
        idle = (state["exp_avg"] == 0) & (state["exp_avg_sq"] == 0)
        assert torch.equal(p.detach()[idle], before[name][idle])


@pytest.mark.parametrize("other", OTHER_SETS[isa()])
def test_other_instruction_sets(other):
    code = (
        "from tests.sparse.conftest import OF_CHAINS\n"
        "from tests.sparse.test_shared_units import *\n"
        "for name in sorted(OF_CHAINS):\n"
        "    test_a_batch_is_its_samples_bit_for_bit(OF_CHAINS[name])\n"
        "    for widths in ([300, 300, 300, 10], [64, 1, 17, 33], [5, 3, 2]):\n"
        "        test_output_and_gradients_match_float64(widths, OF_CHAINS[name], 1)\n"
        "for name in OPTIMIZERS:\n"
        "    test_fused_steps_follow_float64(name, True, 1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        # One thread: beside other tests two of torch's wait for each other for minutes.
        env={**os.environ, "HUSH_ISA": other, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
