"""Attention's heads drawn from the law of their logits, for tokens that are far from exchangeable.

Where neighbours are much more alike than distant tokens (late in a causal network, or behind a convolution) the mean
correlation of a row does not stand for each. Then heads are drawn, logits = √v₀ R Z Rᵀ with RRᵀ = K, or q·k/√d at a
finite head, and what follows is exact for each of them (m = AK, k = AKAᵀ, B = K ∘ G):

    values   Aᵀ G A
    queries  v₀ G ∘ (A(K∘K)Aᵀ − (m∘m)Aᵀ − A(m∘m)ᵀ + k∘k)
    keys     v₀ (K ∘ AᵀBA − Aᵀ(m ∘ BA) − (m ∘ BA)ᵀA + Aᵀ(B∘k)A)
"""

import numpy as np

from hush.theory._arrays import Array
from hush.theory.positions.field import Field

__all__ = ["draw_heads", "drawn_backward", "drawn_forward"]

# Numbers in the weights of all draws together.
_NUMBERS, _FEWEST, _MOST = 1 << 19, 8, 192


def draw_heads(field: Field, level: float, causal: bool, head_dim: int | None, seed: int = 0) -> Array:
    """(draws, inputs, T, T) softmax weights; a head is the same for all inputs."""
    n, size = field.inputs, field.positions
    draws = int(np.clip(_NUMBERS // (n * size) ** 2, _FEWEST, _MOST))
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(field.kernel.transpose(0, 2, 1, 3).reshape(n * size, n * size))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    if head_dim is None:
        # The rows of Rᵀ that belong to one input on either side.
        parts = root.reshape(n, size, n * size)
        logits = parts @ rng.standard_normal((draws, 1, n * size, n * size)) @ parts.transpose(0, 2, 1)
    else:
        queries, keys = (root @ rng.standard_normal((draws, n * size, head_dim)) for _ in range(2))
        queries, keys = (x.reshape(draws, n, size, head_dim) for x in (queries, keys))
        logits = queries @ keys.transpose(0, 1, 3, 2) / np.sqrt(head_dim)
    logits = np.sqrt(level) * logits
    if causal:
        logits = np.where(np.tri(size, dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def drawn_forward(field: Field, heads: Array) -> Array:
    """The mean of A_a K_ab A_bᵀ over the heads, in the form of the field's kernel."""
    kernel = np.empty(field.kernel.shape)
    for a in range(field.inputs):
        for b in range(field.inputs):
            kernel[a, b] = (heads[:, a] @ field.kernel[a, b] @ heads[:, b].transpose(0, 2, 1)).mean(0)
    return kernel


def drawn_backward(gradient: Array, kernel: Array, heads: Array, level: float) -> Array:
    """The mean gradient in front of one input's heads, by values, queries and keys."""
    a = heads[:, 0]
    back = a.transpose(0, 2, 1)
    result = back @ gradient @ a
    if level > 0.0:
        mean = a @ kernel
        squares = mean**2
        mixed = mean @ back
        crossed = squares @ back
        queries = a @ kernel**2 @ back - crossed - crossed.transpose(0, 2, 1) + mixed**2
        both = kernel * gradient
        met = back @ (mean * (both @ a))
        keys = kernel * (back @ both @ a) - met - met.transpose(0, 2, 1) + back @ (both * mixed) @ a
        result = result + level * (gradient * queries + keys)
    return np.asarray(result.mean(0))
