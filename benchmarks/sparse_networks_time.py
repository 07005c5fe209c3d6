"""Time of a training step of the networks of `sparse_networks.py`: dense ReLU, held at 95 %, held and accelerated.

    python -m benchmarks.sparse_networks_time --out docs/results/sparse_networks_time.md

float32, all threads, the optimizer included; one step of each in turn, the median of the ratios to dense ReLU.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import hush
from benchmarks._origin import day_and_machine
from benchmarks._sparse_networks import NETWORKS, Network

_HEADS = ("network", "batch", "dense ReLU", "held at 0.95", "ratio", "held and accelerated", "ratio")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[*NETWORKS], default=[*NETWORKS], metavar="NETWORK")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = [
        "# Time of a training step\n",
        f"`python -m benchmarks.sparse_networks_time`, {day_and_machine()}. float32, optimizer included; one step of "
        "each in turn, medians over all turns. A ratio above 1 is faster than dense ReLU.\n",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * len(_HEADS),
    ]
    for name in arguments.only:
        lines.append(_row(NETWORKS[name], arguments.turns))
        print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


def _row(network: Network, turns: int) -> str:
    dense, held, fast = (network.build(name, share, 0) for name, share in (("relu", None), *[("crelu", 0.95)] * 2))
    for model in (held, fast):
        hush.hold(model, 0.95)
    fast = hush.sparse.accelerate(fast)
    steps = [_stepper(network, model) for model in (dense, held, fast)]
    times: list[list[float]] = [[] for _ in steps]
    for turn in range(turns + 3):
        for step, seen in zip(steps, times, strict=True):
            began = time.perf_counter()
            step()
            # The first turns fill caches and choose kernels.
            if turn >= 3:
                seen.append(time.perf_counter() - began)
    first, *others = times
    cells = [network.title, str(network.batch), f"{1e3 * statistics.median(first):.1f} ms"]
    for other in others:
        ratio = statistics.median(a / b for a, b in zip(first, other, strict=True))
        cells += [f"{1e3 * statistics.median(other):.1f} ms", f"{ratio:.2f}"]
    return "| " + " | ".join(cells) + " |"


def _stepper(network: Network, model: nn.Module) -> Callable[[], None]:
    inputs, labels = next(network.data().train(network.batch, 1, 0))
    # So small a rate that the zeros stay where they are.
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=1e-8) if network.sgd else torch.optim.AdamW(model.parameters(), 1e-8)
    )
    model.train()

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten()).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
