"""Networks of feed-forward blocks under test: blocks alone, plain or gated, and a whole byte transformer."""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from torch import Tensor, nn

from hush.nn import CReLU
from hush.nn.models.transformers import BYTES, FeedForward, GatedFeedForward, gpt

from .random_networks import plan_for

__all__ = ["CONTEXT", "random_bytes", "random_feedforward", "random_gpt"]

CONTEXT = 128  # bytes of a sample of the transformer
_CLIP = 2.0


class FeedForwardBlock(nn.Module):
    """x ← x + β f(LayerNorm(x))."""

    def __init__(self, norm: nn.Module, feed_forward: nn.Module, scale: float) -> None:
        super().__init__()
        self.norm, self.feed_forward, self.scale = norm, feed_forward, scale

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.feed_forward(self.norm(x))
        return x + self.scale * branch


def random_feedforward(width: int, depth: int, sparsity: float, gated: bool = False, seed: int = 0) -> nn.Sequential:
    """Blocks x ← x + β(W₂ φ(W₁ LayerNorm(x) + b₁) + b₂), β = 1/√depth, with 4 · width units between; or gated ones.

    Behind the norm pre-activations are Gaussian with variance 1, so the threshold is the quantile of the sparsity.
    """
    blocks = []
    for _ in range(depth):
        phi, kind = _phi(sparsity), GatedFeedForward if gated else FeedForward
        blocks.append(FeedForwardBlock(nn.LayerNorm(width), kind(width, 4 * width, phi), 1 / math.sqrt(depth)))
    model = nn.Sequential(*blocks)
    _draw(model, seed)
    return model


def random_gpt(width: int, depth: int, sparsity: float, seed: int = 0) -> nn.Sequential:
    """`hush.nn.gpt` with `depth` layers, 4 · width units in its feed-forwards and that sparsity in them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = gpt(lambda: _phi(sparsity), layers=depth, width=width, context=CONTEXT)
    _draw(model, seed)
    return nn.Sequential(model)


def random_bytes(batch: int, generator: torch.Generator) -> Tensor:
    """A batch of inputs of the transformer."""
    return torch.randint(BYTES, (batch, CONTEXT), generator=generator)


def _phi(sparsity: float) -> CReLU:
    plan_for(sparsity)  # which says what is wrong with it
    return CReLU(NormalDist().inv_cdf(sparsity), _CLIP)


@torch.no_grad()
def _draw(model: nn.Module, seed: int) -> None:
    """The feed-forwards' weights, for pre-activations and outputs of variance 1."""
    generator = torch.Generator().manual_seed(seed)
    sample = torch.randn(100_000, generator=generator)
    for module in model.modules():
        if isinstance(module, (FeedForward, GatedFeedForward)):
            second_moment = float(module.phi(sample).square().mean())
            for linear in (m for m in module.children() if isinstance(m, nn.Linear)):
                moment = second_moment if linear is module.down else 1.0
                linear.weight.normal_(0, 1 / math.sqrt(linear.in_features * moment), generator=generator)
                if linear.bias is not None:
                    linear.bias.zero_()
