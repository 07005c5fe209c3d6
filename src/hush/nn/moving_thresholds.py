"""The activations for compiled code whose thresholds move: τ and m are tensors, which a graph reads at each run.

As numbers they would be constants of the graph, and every move would compile it anew. The values and the derivatives
are those of `hush.nn.functional`: `torch.where` passes the gradient in the branch it takes, so none at the kinks.
"""

import torch
from torch import Tensor

__all__ = ["jump", "keep_large", "odd", "one_sided"]


def one_sided(x: Tensor, threshold: Tensor, clip: Tensor) -> Tensor:
    """min(max(x − τ, 0), m); m may be ∞."""
    threshold, clip = threshold.to(x.device, x.dtype), clip.to(x.device, x.dtype)
    y = x - threshold
    # A NaN answers no to both questions and passes.
    return torch.where(y <= 0.0, 0.0, torch.where(y >= clip, clip, y))


def odd(x: Tensor, threshold: Tensor, clip: Tensor) -> Tensor:
    """sign(x) min(max(|x| − τ, 0), m)."""
    threshold, clip = threshold.to(x.device, x.dtype), clip.to(x.device, x.dtype)
    y = x - torch.clamp(x, -threshold, threshold)  # both terms pass the gradient inside, which leaves none
    return torch.where(y >= clip, clip, torch.where(y <= -clip, -clip, y))


def jump(x: Tensor, threshold: Tensor) -> Tensor:
    """x for x > τ, else 0."""
    return torch.where(x <= threshold.to(x.device, x.dtype), 0.0, x)


def keep_large(y: Tensor, threshold: Tensor) -> Tensor:
    """y where |y| > τ, else 0."""
    return torch.where(y.abs() <= threshold.to(y.device, y.dtype), 0.0, y)
