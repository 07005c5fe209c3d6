"""The finite-width law of 1 − ρ against real random networks: the share of networks below each predicted quantile.

    python -m benchmarks.separation_law [--count 200] [--seed 1]

Every network is drawn with all its weights and biases and fed two inputs, whose norms and cosine are drawn from those of
standardised images. A calibrated prediction puts a share p of the networks below its p-quantile. Writes
docs/results/separation_law.md.
"""

# ruff: noqa: E501 (the lines of the page it writes)
from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch

from benchmarks._origin import day_and_machine
from hush._files import replace_text
from hush.theory import IMAGE_CORRELATIONS, IMAGE_NORMS, Design, design, separations

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "separation_law.md"
LEVELS = (0.1, 0.5, 0.9)
# (activation, sparsity, V′, width, depth)
CASES = (
    ("crelu", 0.85, 0.7, 64, 20),
    ("crelu", 0.85, 0.5, 64, 50),
    ("cst", 0.8, 0.7, 64, 100),
    ("crelu", 0.9, 0.5, 128, 30),
    ("cst", 0.85, 0.7, 128, 50),
    ("crelu", 0.7, 0.7, 128, 100),
    ("crelu", 0.85, 0.9, 128, 30),
    ("cst", 0.9, 0.5, 300, 30),
    ("crelu", 0.85, 0.7, 300, 50),
    ("crelu", 0.85, 0.5, 300, 100),
    ("shifted_relu", 0.5, 1.0, 300, 100),
)


def measured(made: Design, width: int, depth: int, count: int, seed: int) -> np.ndarray:
    """1 − cos of two inputs' pre-activations at layers 1 … depth, shape (layers, networks)."""
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    phi, norms = made.phi(), made.input_variance * IMAGE_NORMS.at(rng.standard_normal((2, count)))
    rho = IMAGE_CORRELATIONS.at(rng.standard_normal(count))
    found = np.empty((depth, count))
    for network in range(count):
        first, second = torch.randn(2, width, generator=generator, dtype=torch.float64).numpy()
        # The first layer's draw of two inputs with these norms and this cosine.
        second = rho[network] * first + math.sqrt(1.0 - rho[network] ** 2) * second
        h = np.stack([first, second]) * np.sqrt(norms[:, network])[:, None]
        for layer in range(depth):
            if layer > 0:
                weights = torch.randn(width, width, generator=generator).numpy()
                biases = torch.randn(width, generator=generator).numpy()
                h = phi(h) @ weights.T.astype(np.float64) * (made.sigma_w / math.sqrt(width)) + made.sigma_b * biases
            unit = h / np.sqrt((h**2).sum(1, keepdims=True))
            found[layer, network] = 0.5 * ((unit[0] - unit[1]) ** 2).sum()
    return found


def shares(case: tuple[str, float, float, int, int], count: int, seed: int) -> dict[str, list[float]]:
    """By layer, the share of networks below each predicted quantile."""
    activation, sparsity, slope, width, depth = case
    made = design(activation, sparsity, v_prime=None if slope == 1.0 else slope)
    law = separations(made.chain(), width, depth, q_start=made.input_variance, pairs=4000)
    found = measured(made, width, depth, count, seed)
    return {
        name: [float(np.mean(found[layer] < law.quantiles[level][layer])) for level in LEVELS]
        for name, layer in (("middle", depth // 2), ("last", depth - 1))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="networks in a row")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    error = 2.0 * math.sqrt(0.25 / arguments.count)
    lines = [
        "# The law of 1 − ρ beside real networks",
        "",
        f"`python -m benchmarks.separation_law --count {arguments.count} --seed {arguments.seed}`, {day_and_machine()}.",
        "",
        f"{arguments.count} random networks a row, all of their weights drawn, each fed two inputs with norms and cosine of standardised",
        "images. The share of networks below the predicted 10, 50 and 90 % quantiles of 1 − ρ; two standard errors are at most",
        f"{error:.3f} at the median and {0.6 * error:.3f} at the others.",
        "",
        "| φ | s | V′ | width | depth | layer | below the 10 % quantile | 50 % | 90 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    off = []
    for case in CASES:
        for layer, below in shares(case, arguments.count, arguments.seed).items():
            off.append([share - level for share, level in zip(below, LEVELS, strict=True)])
            cells = " | ".join(f"{share:.3f}" for share in below)
            lines.append(f"| {case[0]} | {case[1]:g} | {case[2]:g} | {case[3]} | {case[4]} | {layer} | {cells} |")
            print(lines[-1], flush=True)
    mean, worst = np.abs(off).mean(), np.abs(off).max()
    lines += ["", f"Mean distance from the quantile's own level {mean:.3f}, largest {worst:.3f}.", ""]
    replace_text(RESULTS, "\n".join(lines))


if __name__ == "__main__":
    main()
