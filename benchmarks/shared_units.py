"""python benchmarks/shared_units.py: how many active units the samples of a batch share, and when dense products pay.

First a deep random chain, layer by layer: the share of units that are active in one sample, and in any of 4, 16 and 128.
Deep down all inputs have nearly the same active units.

Then the time of one layer, forward and backward, on a batch of 128 whose samples have 45 of 300 units each, drawn from
`together` units that any of them may have. The kernels take the dense product over those while they are few, and lists
of each sample's own units beyond. Where inference changes from one to the other its time should not jump; a jump says
that the bound (native/forward_by_samples.cpp) is wrong for this machine. In training a layer by itself, whose outputs all
have gradients, takes lists sooner than one whose outputs are shared units of the next.
"""

from __future__ import annotations

import argparse
import statistics

import torch

from hush import sparse
from hush.bench import random_network
from hush.bench.timing import Work, interleaved
from hush.sparse.cpu import CpuBackend
from hush.sparse.step_plan import Rule, StepPlan

WIDTH, DEPTH, BATCH, ACTIVE = 300, 100, 128, 45
TOGETHER = (45, 60, 80, 100, 120, 124, 126, 150, 180, 220, 300)


@torch.no_grad()
def overlap(sparsity: float) -> list[tuple[int, list[float]]]:
    """(layer, shares of units active in any of 1, 4, 16 and 128 samples)."""
    rows = []
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(2))
    layers = list(random_network(WIDTH, DEPTH, sparsity))
    for i, module in enumerate(layers):
        x = module(x)
        if i % 2 == 0:
            active = x != 0
            shares = [float(active.view(-1, n, WIDTH).any(1).double().mean()) for n in (1, 4, 16, BATCH)]
            rows.append((i // 2, shares))
    return rows


def one_layer(together: int) -> dict[str, Work]:
    """Forward without and with what the backward needs, and the whole backward with an SGD step."""
    generator = torch.Generator().manual_seed(together)
    h = torch.full((BATCH, WIDTH), -1.0)
    columns = torch.randperm(WIDTH, generator=generator)[:together]
    for row in h:
        chosen = columns[torch.randperm(together, generator=generator)[:ACTIVE]]
        row[chosen] = torch.rand(ACTIVE, generator=generator) + 0.5
    weight = (torch.randn(WIDTH, WIDTH, generator=generator) / ACTIVE**0.5).t()
    bias = torch.zeros(WIDTH)
    program = CpuBackend().compile([weight], [bias], [sparse.Activation.relu()])
    saved = program.forward(h).saved
    grad = torch.randn(BATCH, WIDTH, generator=generator)
    plan = StepPlan(1)
    plan.update(0, "weight", Rule(2, 1e-9), ())
    plan.update(0, "bias", Rule(2, 1e-9), ())
    kept = [weight, bias]  # the program reads this memory
    return {
        "inference": lambda turn: program.infer(h) if kept else None,
        "forward": lambda turn: program.forward(h) if kept else None,
        "backward": lambda turn: program.backward(grad, saved, True, plan) if kept else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sparsity", type=float, nargs="*", default=[0.85, 0.95])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=101)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for sparsity in given.sparsity:
        print(f"\n{DEPTH} layers × {WIDTH}, s = {sparsity:g}: active in one, any of 4, any of 16, any of {BATCH} samples")
        for layer, shares in overlap(sparsity):
            if layer in (0, 1, 2, 5, 10, 20, 50, 99):
                print(f"  layer {layer:3d}  " + "  ".join(f"{share:.3f}" for share in shares))
    works = {f"{n} {name}": work for n in TOGETHER for name, work in one_layer(n).items()}
    found = {name: statistics.median(times) for name, times in interleaved(works, given.repeats).items()}
    print(f"\none layer of {WIDTH}, batch {BATCH}, {ACTIVE} active, {given.threads} threads, µs")
    print("| together | inference | forward | backward |\n|---|---|---|---|")
    for n in TOGETHER:
        cells = [f"{1e3 * found[f'{n} {name}']:.0f}" for name in ("inference", "forward", "backward")]
        print("|", " | ".join([str(n), *cells]), "|")


if __name__ == "__main__":
    main()
