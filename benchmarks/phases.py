"""python benchmarks/phases.py: where the time of a step goes, 100 layers × 300, and what the memory gives.

Each phase runs twice: over a hundred matrices (36 MB, more than L2) and over one matrix used a hundred times, which
stays in L2. The difference is the price of fetching weights. Phases are those of the fused SGD step:

    forward           without gradients, as in inference
    + saving          what the forward of a step does besides: sorting the active units by input
    input gradient    the backward with all weights frozen
    + update          weight and bias gradients and the SGD update, in the same sweep
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from hush import sparse
from hush.bench import random_network
from hush.bench.timing import Work, interleaved
from hush.sparse.cpu import CpuBackend
from hush.sparse.layout import on_large_pages
from hush.sparse.step_plan import Part, Rule, StepPlan

WIDTH, DEPTH, INPUTS = 300, 100, 16


def phases(sparsity: float, batch: int, shared: bool) -> dict[str, Work]:
    """name → work. Shared: all layers use one matrix."""
    model = random_network(WIDTH, DEPTH, sparsity)
    linears = [m for m in model if isinstance(m, torch.nn.Linear)]
    phis = [sparse.Activation.crelu(m.threshold, m.clip) for m in model if not isinstance(m, torch.nn.Linear)]
    weights = on_large_pages([m.weight.detach() for m in linears])  # as accelerate does
    biases = [m.bias.detach() for m in linears]
    if shared:
        weights, biases = [weights[0]] * DEPTH, [biases[0]] * DEPTH
    program = CpuBackend().compile(weights, biases, phis)
    generator = torch.Generator().manual_seed(2)
    inputs = [torch.randn(batch, WIDTH, generator=generator) for _ in range(INPUTS)]
    grad = torch.randn(batch, WIDTH, generator=generator) / batch
    kept = [weights, biases]  # the program reads this memory

    def forward(save: bool) -> Work:
        run = program.forward if save else program.infer
        return lambda turn: run(inputs[turn % INPUTS]) if kept else None

    saved = [program.forward(x).saved for x in inputs]

    def backward(parts: tuple[Part, ...]) -> Work:
        plan = StepPlan(DEPTH)
        for layer in range(DEPTH):
            for part in parts:
                plan.update(layer, part, Rule(2, 1e-9), ())  # SGD; a rate that leaves the weights where they are
        return lambda turn: program.backward(grad, saved[turn % INPUTS], False, plan)

    return {
        "forward": forward(False),
        "saving": forward(True),
        "input gradient": backward(()),
        "update": backward(("weight", "bias")),
    }


def bandwidths(threads: int) -> str:
    """GB/s of torch.sum over working sets that lie in L2, in L3 and in memory; the best of many."""
    torch.set_num_threads(threads)
    parts = []
    for megabytes in (0.4, 8, 36, 256):
        x = torch.ones(int(megabytes * 1e6 / 4))
        best = float("inf")
        for _ in range(max(10, int(2000 / megabytes / 10))):
            start = time.perf_counter()
            x.sum()
            best = min(best, time.perf_counter() - start)
        parts.append(f"{megabytes:g} MB {4 * x.numel() / best / 1e9:.0f}")
    return f"read, {threads} threads, GB/s: {', '.join(parts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of a step goes.")
    parser.add_argument("--sparsity", type=float, default=0.85)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 64, 128])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    for threads in given.threads:
        print(bandwidths(threads), flush=True)
    print("\n| batch | threads | weights | forward | + saving | input gradient | + update | step | GFLOP/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for batch in given.batch:
        for threads in given.threads:
            torch.set_num_threads(threads)
            works = {
                f"{where} {name}": work
                for where in ("36 MB", "one")
                for name, work in phases(given.sparsity, batch, where == "one").items()
            }
            found = {name: statistics.median(t) for name, t in interleaved(works, given.repeats).items()}
            for where in ("36 MB", "one"):
                f, s, g, u = (found[f"{where} {n}"] for n in ("forward", "saving", "input gradient", "update"))
                flop = 6 * (1 - given.sparsity) * batch * DEPTH * WIDTH * WIDTH
                cells = [f, s - f, g, u - g, s + u]
                text = " | ".join(f"{c:.2f}" for c in cells)
                print(f"| {batch} | {threads} | {where} | {text} | {flop / (s + u) / 1e6:.0f} |", flush=True)


if __name__ == "__main__":
    main()
