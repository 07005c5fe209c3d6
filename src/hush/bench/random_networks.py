"""The networks under test: depth × (CReLU → Linear), as `hush.design` has it for a given sparsity, and depth residual
blocks of one matrix or of two."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor, nn

from hush.nn import CReLU
from hush.nn.models.residual_mlps import OneMatrixBlock, TwoMatrixBlock
from hush.theory import Design, design

__all__ = ["ARCHES", "Arch", "depth_for", "plan_for", "random_network", "random_residual", "sparsity_of"]

Arch = Literal["chain", "residual", "residual_two", "feedforward", "gated", "gpt", "conv", "resnet"]
ARCHES: tuple[Arch, ...] = ("chain", "residual", "residual_two", "feedforward", "gated", "gpt", "conv", "resnet")
# Blocks or layers, whatever their width; nine blocks of a ResNet make 20 layers.
_BLOCKS = {"feedforward": 1, "gated": 1, "gpt": 4, "conv": 4, "resnet": 9}


def depth_for(width: int, arch: Arch = "chain") -> int:
    """100 layers at width 300; at larger widths as many as keep the same memory, at least 2.

    One feed-forward block, four layers of a transformer, four convolutions, nine blocks of a ResNet.
    """
    if arch in _BLOCKS:
        return _BLOCKS[arch]
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


def random_residual(width: int, depth: int, sparsity: float, seed: int = 0, matrices: int = 1) -> nn.Sequential:
    """Blocks x ← x + β(W φ(LayerNorm(x)) + b) whose branches have variance 1, with β = 1/√depth; or of two matrices,
    x ← x + β(W φ(W₁ LayerNorm(x) + b₁) + b), with as many units between.

    LayerNorm, because every runtime has it as one operation. Behind it units are nearly Gaussian, so the threshold is
    the quantile of the sparsity.
    """
    plan_for(sparsity)
    generator = torch.Generator().manual_seed(seed)
    threshold = NormalDist().inv_cdf(sparsity)
    sample = torch.randn(100_000, generator=generator)
    blocks: list[nn.Module] = []
    for _ in range(depth):
        phi, linear = CReLU(threshold, 2.0), nn.Linear(width, width)
        with torch.no_grad():
            second_moment = float(phi(sample).square().mean())
            linear.weight.normal_(0, 1 / math.sqrt(width * second_moment), generator=generator)
            linear.bias.normal_(0, 0.1, generator=generator)
        if matrices == 1:
            blocks.append(OneMatrixBlock(nn.LayerNorm(width), phi, linear, 1 / math.sqrt(depth)))
            continue
        inner = nn.Linear(width, width)
        with torch.no_grad():
            inner.weight.normal_(0, 1 / math.sqrt(width), generator=generator)
            inner.bias.zero_()
        blocks.append(TwoMatrixBlock(nn.LayerNorm(width), inner, phi, linear, 1 / math.sqrt(depth)))
    return nn.Sequential(*blocks)


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
