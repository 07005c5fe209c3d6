"""The network under test: depth × (CReLU → Linear), as `hush.design` has it for a given sparsity."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hush.theory import Design, design

__all__ = ["depth_for", "plan_for", "random_network", "sparsity_of"]


def depth_for(width: int) -> int:
    """100 layers at width 300; at larger widths as many as keep the same memory, at least 2."""
    return min(100, max(2, round(100 * (300 / width) ** 2)))


def plan_for(sparsity: float) -> Design:
    """The design of that sparsity on the Edge of Chaos, with V′(q*) = 0.7."""
    if not 0.0 < sparsity < 1.0:
        raise ValueError(f"The sparsity is {sparsity}; it must lie between 0 and 1.")
    return design("crelu", sparsity, v_prime=0.7)


def random_network(width: int, depth: int, sparsity: float, seed: int = 0) -> nn.Sequential:
    """A random network that keeps this sparsity along its depth: on the Edge of Chaos, with V′(q*) = 0.7."""
    plan = plan_for(sparsity)
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for _ in range(depth):
        linear = nn.Linear(width, width)
        with torch.no_grad():
            linear.weight.normal_(0, plan.sigma_w / math.sqrt(width), generator=generator)
            linear.bias.normal_(0, plan.sigma_b, generator=generator)
        layers += [plan.module(), linear]
    return nn.Sequential(*layers)


@torch.no_grad()
def sparsity_of(model: nn.Sequential, x: Tensor) -> float:
    """The measured share of silent units over all layers."""
    silent = total = 0
    for module in model:
        x = module(x)
        if not isinstance(module, nn.Linear):
            silent += int((x == 0).sum())
            total += x.numel()
    return silent / max(total, 1)
