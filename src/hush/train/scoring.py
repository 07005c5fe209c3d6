"""Accuracy, loss and sparsity of a network over a split."""

from dataclasses import dataclass

import torch
from torch import nn

from hush.data import Split
from hush.diagnose.share_of_zeros import sparsity
from hush.nn.quiet_run import quietly

__all__ = ["Score", "evaluate"]

_AT_ONCE = 512
_FOR_SPARSITY = 2048


@dataclass(frozen=True)
class Score:
    """The share of right answers, the mean cross entropy, and the share of zeros over all hidden layers."""

    accuracy: float
    loss: float
    sparsity: float


@torch.no_grad()
def evaluate(model: nn.Module, split: Split, *, images: int = _FOR_SPARSITY) -> Score:
    """Over the whole split; the sparsity, which the engine does not hand out, over its first `images`."""
    parameter = next(model.parameters())
    right = torch.zeros((), dtype=torch.long)
    loss = torch.zeros((), dtype=torch.float64)
    with quietly(model):
        for x, y in zip(split.images.split(_AT_ONCE), split.labels.split(_AT_ONCE), strict=True):
            logits = model(x.to(parameter)).cpu().double()
            right += (logits.argmax(1) == y).sum()
            loss += nn.functional.cross_entropy(logits, y, reduction="sum")
    zeros = sparsity(model, split.images[:images].to(parameter).split(_AT_ONCE))
    return Score(float(right) / len(split), float(loss) / len(split), zeros.mean)
