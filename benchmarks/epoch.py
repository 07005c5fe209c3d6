"""How long an epoch of `hush train` takes, dense and accelerated: python benchmarks/epoch.py [--arch mlp] ...

    python benchmarks/epoch.py                                                             # 100 × 300 at 0.85, SGD
    python benchmarks/epoch.py --arch residual_mlp --depth 60 --sparsity 0.95              # blocks of one matrix
    python benchmarks/epoch.py --arch residual_mlp --depth 30 --hidden 300 --sparsity 0.95 # and of two
    python benchmarks/epoch.py --arch gpt --sparsity 0.95
    python benchmarks/epoch.py --arch resnet --width 64 --sparsity 0.95 --subset 10000

Trains the same config with either engine, in turns, and prints the seconds of each epoch after the first (in which the
engine measures where it pays), the ratio of their medians, and both test losses. What is not given is what `hush train`
takes; chains alone have the values of the first command.
"""

import argparse
import dataclasses
import statistics
import tempfile
from typing import Any

import numpy as np
import torch

from hush.sparse import keep_freed_memory
from hush.train import TrainConfig, train

CHAIN = {
    "data": "mnist",
    "depth": 100,
    "sparsity": 0.85,
    "v_prime": 0.7,
    "batch": 64,
    "optimizer": "sgd",
    "lr": 1e-4,
}
DATA = {"mlp": "mnist", "residual_mlp": "mnist", "gpt": "text", "resnet": "cifar10", "cnn": "cifar10"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=[*DATA], default="mlp")
    parser.add_argument("--data")
    parser.add_argument("--depth", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--hidden", type=int, help="Units between the two matrices of a residual block.")
    parser.add_argument("--sparsity", type=float)
    parser.add_argument("--v-prime", type=float)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--optimizer")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--subset", type=int, help="Images of an epoch.")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    values = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    turns, threads = values.pop("turns"), values.pop("threads")
    keep_freed_memory()  # as `hush train` does
    torch.set_num_threads(threads)
    usual: dict[str, Any] = CHAIN if values["arch"] == "mlp" else {"data": DATA[values["arch"]]}
    config = TrainConfig(**{**usual, **values})
    seconds: dict[str, list[float]] = {"dense": [], "sparse": []}
    losses: dict[str, list[float]] = {"dense": [], "sparse": []}
    for seed in range(turns):
        for engine in seconds:
            with tempfile.TemporaryDirectory() as root:
                run = train(dataclasses.replace(config, engine=engine, seed=seed), root, tensorboard=False)
            assert run.result is not None
            seconds[engine] += np.diff(run.metrics["seconds"]).tolist() or run.metrics["seconds"].tolist()
            losses[engine].append(run.result.test_loss)
    sizes = f"{config.depth} × {config.width}, s = {config.sparsity}, batch {config.batch}, {config.optimizer}"
    print(f"{config.arch}, {sizes}, {threads} threads")
    for engine in seconds:
        epochs, scores = (", ".join(f"{v:.4g}" for v in of[engine]) for of in (seconds, losses))
        print(f"{engine:6}  seconds of an epoch: {epochs}; test loss: {scores}")
    print(f"accelerated: {statistics.median(seconds['dense']) / statistics.median(seconds['sparse']):.2f} × as fast")


if __name__ == "__main__":
    main()
