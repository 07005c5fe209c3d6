"""How long an epoch of `hush train` takes, dense and accelerated: python benchmarks/epoch.py [--data mnist] ...

Trains the same config with either engine, in turns, and prints the seconds of each epoch after the first (in which the
engine measures where it pays), the ratio of their medians, and both test accuracies. 100 layers of 300 at s = 0.85 on
all of MNIST take about five minutes on two cores.
"""

import argparse
import dataclasses
import statistics
import tempfile

import numpy as np
import torch

from hush.train import TrainConfig, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--sparsity", type=float, default=0.85)
    parser.add_argument("--v-prime", type=float, default=0.7)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    values = vars(parser.parse_args())
    turns, threads = values.pop("turns"), values.pop("threads")
    torch.set_num_threads(threads)
    config = TrainConfig(**values)
    seconds: dict[str, list[float]] = {"dense": [], "sparse": []}
    accuracy: dict[str, list[float]] = {"dense": [], "sparse": []}
    for seed in range(turns):
        for engine in seconds:
            with tempfile.TemporaryDirectory() as root:
                run = train(dataclasses.replace(config, engine=engine, seed=seed), root, tensorboard=False)
            assert run.result is not None
            seconds[engine] += np.diff(run.metrics["seconds"]).tolist() or run.metrics["seconds"].tolist()
            accuracy[engine].append(run.result.test_accuracy)
    print(f"{config.depth} × {config.width}, s = {config.sparsity}, batch {config.batch}, {threads} threads")
    for engine in seconds:
        epochs, scores = (", ".join(f"{v:.3g}" for v in of[engine]) for of in (seconds, accuracy))
        print(f"{engine:6}  seconds of an epoch: {epochs}; test accuracy: {scores}")
    print(f"accelerated: {statistics.median(seconds['dense']) / statistics.median(seconds['sparse']):.2f} × as fast")


if __name__ == "__main__":
    main()
