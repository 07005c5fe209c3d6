"""python benchmarks/end_to_end.py FOLDER [steps]: a plain training loop on MNIST, dense and accelerated.

784-300×30-10, CReLU s = 0.85, SGD, batch 64, a DataLoader in the loop. Stretches of both take turns.
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hush


def stretch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, steps: int) -> float:
    start = time.perf_counter()
    for step, (x, y) in enumerate(loader):
        if step == steps:
            break
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    torch.set_num_threads(2)
    split = hush.data.load("mnist", directory=sys.argv[1]).train
    images, labels = split.images, split.labels
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    design = hush.design("crelu", sparsity=0.85, width=300, depth=30, v_prime=0.7)
    runs = {}
    for name in ("dense", "accelerated", "accelerated, fused SGD"):
        torch.manual_seed(0)
        model = hush.nn.mlp(784, 10, design)
        hush.init_(model, design)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        if name != "dense":
            hush.sparse.accelerate(model, optimizer=optimizer if "fused" in name else None)
        runs[name] = (model, optimizer)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(8):
        for name, (model, optimizer) in runs.items():
            spent = stretch(model, optimizer, loader, steps)
            if turn:  # the first one measures the crossover
                times[name].append(1e3 * spent / steps)
    for name, t in times.items():
        ratio = statistics.median(times["dense"]) / statistics.median(t)
        print(f"{name:24} {statistics.median(t):7.2f} ms a step, {min(t):.2f} to {max(t):.2f}, ×{ratio:.2f}")


if __name__ == "__main__":
    main()
