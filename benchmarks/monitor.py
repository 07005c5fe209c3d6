"""What `hush.diagnose.Monitor` costs: SGD steps with a snapshot every 50, against the same steps without.

    python benchmarks/monitor.py

Blocks of 50 steps alternate between the two, so that both see the same machine.
"""

import argparse
import statistics
import time

import torch
from torch.nn import functional as F  # noqa: N812

import hush


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--depth", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    design = hush.design("crelu", 0.85, v_prime=0.7)
    model = hush.nn.mlp(64, 10, design, width=options.width, depth=options.depth)
    hush.init_(model, design)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x, y = torch.randn(options.batch, 64), torch.randint(0, 10, (options.batch,))

    def block() -> float:
        start = time.process_time()
        for _ in range(options.every):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return time.process_time() - start

    block()
    plain, watched = [], []
    for _ in range(options.blocks):
        plain.append(block())
        with hush.diagnose.Monitor(model, every=options.every) as monitor:
            watched.append(block())
        assert len(monitor.history) == 1
    overhead = statistics.median(b / a for a, b in zip(plain, watched, strict=True)) - 1.0
    print(
        f"{options.depth} layers × {options.width}, batch {options.batch}, a snapshot every {options.every} steps: "
        f"{overhead:+.1%} CPU time (median of {options.blocks} pairs of blocks)"
    )


if __name__ == "__main__":
    main()
