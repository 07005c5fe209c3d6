"""Time of a training step of the networks of `sparse_networks.py`: dense ReLU, held at 95 %, held and accelerated.

    python -m benchmarks.sparse_networks_time --out docs/results/sparse_networks_time.md

float32, all threads, the optimizer included; some steps of each in turn, the median of the ratios to dense ReLU. The
accelerated network measures its zeros at every eighth step, as `hush train --hold` does, so that blocks run as one in
between; its optimizer is inside the backward (`hush.sparse.step`).
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import hush
from benchmarks._origin import day_and_machine
from benchmarks._sparse_networks import LARGE, NETWORKS, Network

_HEADS = ("network", "batch", "dense ReLU", "held at 0.95", "ratio", "held and accelerated", "ratio")
_EVERY = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[*NETWORKS], default=[*NETWORKS], metavar="NETWORK")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = [
        "# Time of a training step\n",
        f"`python -m benchmarks.sparse_networks_time`, {day_and_machine()}. float32, optimizer included; {_EVERY} "
        "steps of each in turn, medians over all turns. A ratio above 1 is faster than dense ReLU. Shifted ReLU at "
        f"q* = {LARGE:g}; the accelerated one measures its zeros at every {_EVERY}th step and updates inside the "
        "backward.\n",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * len(_HEADS),
    ]
    for name in arguments.only:
        lines.append(_row(NETWORKS[name], arguments.turns))
        print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


def _row(network: Network, turns: int) -> str:
    dense, held, fast = (network.build(*of, 0, LARGE) for of in (("relu", None), *[("shifted_relu", 0.95)] * 2))
    hush.hold(held, 0.95)
    hush.hold(fast, 0.95, every=_EVERY, gain=0.2)
    # So small a rate that the zeros stay where they are.
    optimizers = [replace(network, rate=1e-8).optimizer(model) for model in (dense, held, fast)]
    hush.sparse.accelerate(fast, optimizer=optimizers[2])
    steps = [_stepper(network, dense, optimizers[0]), _stepper(network, held, optimizers[1]), _stepper(network, fast)]
    times: list[list[float]] = [[] for _ in steps]
    for turn in range(turns + 1):
        for step, seen in zip(steps, times, strict=True):
            began = time.perf_counter()
            for _ in range(_EVERY):
                step()
            # The first turn fills caches and chooses kernels.
            if turn:
                seen.append((time.perf_counter() - began) / _EVERY)
    first, *others = times
    cells = [network.title, str(network.batch), f"{1e3 * statistics.median(first):.1f} ms"]
    for other in others:
        ratio = statistics.median(a / b for a, b in zip(first, other, strict=True))
        cells += [f"{1e3 * statistics.median(other):.1f} ms", f"{ratio:.2f}"]
    return "| " + " | ".join(cells) + " |"


def _stepper(network: Network, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Callable[[], None]:
    """One step by this optimizer, or by the one that the accelerated model has."""
    inputs, labels = next(network.data().train(network.batch, 1, 0))
    model.train()

    def step() -> None:
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        if optimizer is None:
            hush.sparse.step(model, loss)
            return
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
