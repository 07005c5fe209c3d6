"""The finite-width chain against real random networks: quantiles of q and of the gradient's gain, as Markdown.

    python benchmarks/finite_width.py [--count 400] [--depth 20]

Every network is drawn with all its weights, fed one input, and its gradient is propagated back through the same
weights. A calibrated prediction puts a share p of the networks below its p-quantile.
"""

import argparse
import math
from collections.abc import Callable

import numpy as np
import torch

from hush.theory import IMAGE_NORMS, Design, PiecewiseLinear, design, finite_width

LEVELS = (0.1, 0.5, 0.9)


def random_networks(
    phi: PiecewiseLinear, sigma_w: float, sigma_b: float, width: int, depth: int, count: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(q at layers 1 … depth, log10 |δ_1|²/|δ_L|²) of `count` networks; shapes (count, depth) and (count,)."""
    generator = torch.Generator().manual_seed(seed)
    norms = torch.from_numpy(IMAGE_NORMS.at(np.random.default_rng(seed).standard_normal(count))).float()
    batch = max(1, 2_000_000 // width**2)
    parts = [_forward_and_back(phi, sigma_w, sigma_b, width, depth, part, generator) for part in norms.split(batch)]
    return np.concatenate([q for q, _ in parts]), np.concatenate([gain for _, gain in parts])


def _forward_and_back(
    phi: PiecewiseLinear,
    sigma_w: float,
    sigma_b: float,
    width: int,
    depth: int,
    norms: torch.Tensor,
    generator: torch.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """A batch of networks at once, one input each: tensors are (network, unit)."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(len(norms), *shape, generator=generator)

    def apply(function: Callable[[np.ndarray], np.ndarray], h: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.asarray(function(h.double().numpy()))).float()

    # The first layer preserves the input's variance: h ~ N(0, |x|²/N).
    h = norms.sqrt()[:, None] * normal(width)
    q, weights, slopes = [], [], []
    for layer in range(depth):
        q.append(h.double().square().mean(1))
        slopes.append(apply(phi.derivative, h))
        if layer + 1 < depth:
            weights.append(sigma_w / math.sqrt(width) * normal(width, width))
            h = torch.bmm(weights[-1], apply(phi, h)[..., None])[..., 0] + sigma_b * normal(width)
    delta = slopes[-1] * normal(width)
    start = delta.square().sum(1)
    for slope, weight in zip(slopes[-2::-1], weights[::-1], strict=True):
        delta = slope * torch.bmm(delta[:, None], weight)[:, 0]
    return torch.stack(q, 1).numpy(), torch.log10(delta.square().sum(1) / start).numpy()


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
    parser.add_argument("--depth", type=int, default=20)
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
