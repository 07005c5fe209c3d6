"""The finite-width chain against real random networks: quantiles of q and of the gradient's gain, as Markdown.

    python benchmarks/finite_width.py [--count 400] [--depth 50]

Every network is drawn with all its weights, fed one input, and its gradient is propagated back through the same
weights. A calibrated prediction puts a share p of the networks below its p-quantile.
"""

import argparse
import math

import numpy as np
import torch

from hush.theory import IMAGE_NORMS, PiecewiseLinear, design, finite_width
from hush.theory.design import Design

LEVELS = (0.1, 0.5, 0.9)


def random_networks(
    phi: PiecewiseLinear, sigma_w: float, sigma_b: float, width: int, depth: int, count: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(q at layers 1 … depth, log10 |δ_1|²/|δ_L|²) of `count` networks; shapes (count, depth) and (count,)."""
    generator = torch.Generator().manual_seed(seed)
    norms = IMAGE_NORMS.at(np.random.default_rng(seed).standard_normal(count))
    q, gain = np.empty((count, depth)), np.empty(count)
    for i in range(count):
        # The first layer preserves the input's variance: h ~ N(0, |x|²/N).
        h = math.sqrt(norms[i]) * torch.randn(width, generator=generator)
        weights, slopes = [], []
        for layer in range(depth):
            values = h.double().numpy()
            q[i, layer] = np.mean(values**2)
            slopes.append(torch.from_numpy(np.asarray(phi.derivative(values))).float())
            if layer + 1 < depth:
                x = torch.from_numpy(np.asarray(phi(values))).float()
                weights.append(sigma_w / math.sqrt(width) * torch.randn(width, width, generator=generator))
                h = weights[-1] @ x + sigma_b * torch.randn(width, generator=generator)
        delta = slopes[-1] * torch.randn(width, generator=generator)
        start = delta.square().sum()
        for slope, weight in zip(slopes[-2::-1], weights[::-1], strict=True):
            delta = slope * (weight.T @ delta)
        gain[i] = float(torch.log10(delta.square().sum() / start))
    return q, gain


def compare(made: Design, width: int, depth: int, count: int) -> dict[str, list[float]]:
    """For each level the share of networks below the predicted quantile of q (middle, last layer) and of the gain."""
    phi = made.phi()
    q, gain = random_networks(phi, made.sigma_w, made.sigma_b, width, depth, count)
    chain = finite_width(phi, made.sigma_w, made.sigma_b, width, depth)
    shares: dict[str, list[float]] = {}
    for name, layer in (("q, middle layer", depth // 2), ("q, last layer", depth - 1)):
        shares[name] = [float(np.mean(q[:, layer] < chain.q_quantiles[level][layer])) for level in LEVELS]
    shares["gain"] = [float(np.mean(gain < chain.gain_log10[level])) for level in LEVELS]
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="networks per row")
    parser.add_argument("--depth", type=int, default=50)
    arguments = parser.parse_args()
    error = 2.0 * math.sqrt(0.25 / arguments.count)
    print(
        f"{arguments.count} networks of depth {arguments.depth} a row; two standard errors are at most {error:.3f}.\n"
    )
    print("| activation | s | V′ | width | | below the 10 % quantile | 50 % | 90 % |")
    print("|---|---|---|---|---|---|---|---|")
    for name, sparsity, v_prime in (("crelu", 0.85, 0.7), ("cst", 0.8, 0.9), ("crelu", 0.9, 0.5)):
        for width in (100, 300, 1000):
            made = design(name, sparsity, v_prime=v_prime)
            for what, shares in compare(made, width, arguments.depth, arguments.count).items():
                cells = " | ".join(f"{share:.3f}" for share in shares)
                print(f"| {name} | {sparsity} | {v_prime} | {width} | {what} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
