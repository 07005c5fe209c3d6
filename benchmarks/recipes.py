"""What the recipe comes to when nothing is chosen by hand: `hush train --data DATA --depth DEPTH`, seed by seed.

    python benchmarks/recipes.py                          digits, 10, 30, 50 and 100 layers
    python benchmarks/recipes.py --data mnist --depth 30

The lines it prints are those of `hush.train.recipe.MEASURED`. Runs are kept under --root: what is done is only read.
"""

import argparse
from pathlib import Path

import torch

from hush.train import TrainConfig, train
from hush.train.recipe import Measured


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--depth", type=int, action="append")
    parser.add_argument("--activation", action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--root", type=Path, default=Path("runs/recipes"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    for depth in asked.depth or (10, 30, 50, 100):
        for name in asked.activation or ("crelu",):
            configs = [TrainConfig(data=asked.data, activation=name, depth=depth, seed=s) for s in range(asked.seeds)]
            results = [train(config, asked.root, progress=False).result for config in configs]
            done = [result for result in results if result is not None]
            accuracies = tuple(round(result.test_accuracy, 3) for result in done)
            print(repr(Measured(asked.data, name, depth, configs[0].epochs, accuracies)) + ",", flush=True)
            seconds = ", ".join(f"{result.seconds:.0f}" for result in done)
            print(f"# {configs[0].design().verdict}\n# {', '.join(r.outcome for r in done)}; {seconds} s", flush=True)


if __name__ == "__main__":
    main()
