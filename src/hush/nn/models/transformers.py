"""A decoder-only transformer over bytes: 256 tokens, no tokeniser, learned positions, causal attention."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from hush.nn.models.pieces import (
    ActivationSource,
    BranchScale,
    activation_factory,
    branch_scale_of,
    check_sizes,
    norm_over_features,
    size_of,
)
from hush.theory import Design

__all__ = ["BYTES", "GPT", "CausalAttention", "FeedForward", "GatedFeedForward", "TransformerLayer", "gpt"]

BYTES = 256


class CausalAttention(nn.Module):
    """Every position reads itself and those before it, by `heads` heads of width/heads units."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed_back: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return mixed_back


class FeedForward(nn.Module):
    """W₂ φ(W₁ x + b₁) + b₂."""

    def __init__(self, width: int, hidden: int, phi: nn.Module) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.phi = phi
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(self.phi(self.up(x)))
        return result


class GatedFeedForward(nn.Module):
    """W₂ (φ(W_g x) ∘ W_u x)."""

    def __init__(self, width: int, hidden: int, phi: nn.Module) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.phi = phi
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(self.phi(self.gate(x)) * self.up(x))
        return result


class TransformerLayer(nn.Module):
    """Two branches, each with its norm in front: x ← x + β attention(n₁(x)), x ← x + β feed_forward(n₂(x))."""

    def __init__(
        self,
        norm1: nn.Module,
        attention: CausalAttention,
        attention_scale: float | nn.Parameter,
        norm2: nn.Module,
        feed_forward: FeedForward | GatedFeedForward,
        feed_forward_scale: float | nn.Parameter,
    ) -> None:
        super().__init__()
        self.norm1, self.attention = norm1, attention
        self.attention_scale = attention_scale
        self.norm2, self.feed_forward = norm2, feed_forward
        self.feed_forward_scale = feed_forward_scale

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.attention(self.norm1(x))
        x = x + self.attention_scale * mixed
        fed: Tensor = self.feed_forward(self.norm2(x))
        return x + self.feed_forward_scale * fed


class GPT(nn.Module):
    """Bytes (batch, positions) to the logits of the byte that follows each (batch, positions, 256)."""

    def __init__(self, context: int, width: int, layers: nn.Sequential, norm: nn.Module) -> None:
        super().__init__()
        self.context = context
        self.token = nn.Embedding(BYTES, width)
        self.position = nn.Embedding(context, width)
        self.layers, self.norm = layers, norm
        self.head = nn.Linear(width, BYTES, bias=False)
        # Of tables no input is summed up: each gives half of the stream's variance of 1.
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=math.sqrt(0.5))

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.context:
            raise ValueError(f"this network reads at most {self.context} bytes at once, got {length}.")
        x = self.token(tokens) + self.position(torch.arange(length, device=tokens.device))
        x = self.layers(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def gpt(
    activation: ActivationSource,
    *,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    hidden: int | None = None,
    context: int = 128,
    gated: bool = False,
    norm: Literal["rms", "layer"] = "rms",
    branch_scale: BranchScale = "1/sqrt(depth)",
) -> GPT:
    """`layers` transformer layers on a stream of `width` units. The weights are torch's until `hush.init_` draws them.

    Arguments:
        activation: a design, or what makes an activation when it is called, such as nn.GELU.
        layers: by default the depth of the design.
        width: by default that of the design.
        heads: by default one for every 64 units, and at least one; must divide the width.
        hidden: units of the feed-forward; by default 4 · width.
        context: the most bytes it can read at once.
        gated: φ(W_g x) ∘ W_u x in place of φ(W₁ x + b₁).
        norm: in front of every branch and of the head.
        branch_scale: β; "depth" is the number of branches, two for each layer.
    """
    design = activation if isinstance(activation, Design) else None
    layers = size_of("layers", layers, design.depth if design else None)
    width = size_of("width", width, design.width if design else None)
    heads = _usual_heads(width) if heads is None else heads
    hidden = 4 * width if hidden is None else hidden
    check_sizes(heads=heads, hidden=hidden, context=context)
    if width % heads:
        raise ValueError(f"a width of {width} does not fall into {heads} heads of equal size.")
    if norm is None:
        raise ValueError("norm must be 'rms' or 'layer': without one nothing bounds what attention compares.")
    phi = activation_factory(activation)
    feed_forward = GatedFeedForward if gated else FeedForward

    def layer() -> TransformerLayer:
        return TransformerLayer(
            norm_over_features(norm, width),
            CausalAttention(width, heads),
            branch_scale_of(branch_scale, 2 * layers),
            norm_over_features(norm, width),
            feed_forward(width, hidden, phi()),
            branch_scale_of(branch_scale, 2 * layers),
        )

    return GPT(context, width, nn.Sequential(*(layer() for _ in range(layers))), norm_over_features(norm, width))


def _usual_heads(width: int) -> int:
    """One for every 64 units; fewer where so many would not divide the width."""
    return next(heads for heads in range(max(1, width // 64), 0, -1) if width % heads == 0)
