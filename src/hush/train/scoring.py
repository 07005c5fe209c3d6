"""Accuracy, loss and sparsity of a network over a split."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hush.data import Split
from hush.diagnose.share_of_zeros import sparsity
from hush.nn.quiet_run import quietly

__all__ = ["Score", "evaluate"]

_AT_ONCE = 512
_WINDOWS_AT_ONCE = 32  # each of them as many inputs as it has bytes
_FOR_SPARSITY = 2048


@dataclass(frozen=True)
class Score:
    """The share of right answers, the mean cross entropy, and the share of zeros: the mean over layers, and each."""

    accuracy: float
    loss: float
    sparsity: float
    layer_sparsity: tuple[float, ...]


@torch.no_grad()
def evaluate(model: nn.Module, split: Split, *, images: int = _FOR_SPARSITY) -> Score:
    """Over the whole split; the sparsity, which the engine does not hand out, over its first `images`.

    Of a text every position has its answer.
    """
    parameter = next(model.parameters())
    at_once = _AT_ONCE if split.images.is_floating_point() else _WINDOWS_AT_ONCE
    right = torch.zeros((), dtype=torch.long)
    loss = torch.zeros((), dtype=torch.float64)
    with quietly(model):
        for x, y in zip(split.images.split(at_once), split.labels.split(at_once), strict=True):
            logits = model(_like(x, parameter)).cpu().double().flatten(0, -2)
            right += (logits.argmax(1) == y.flatten()).sum()
            loss += nn.functional.cross_entropy(logits, y.flatten(), reduction="sum")
    zeros = sparsity(model, _like(split.images[:images], parameter).split(at_once))
    answers = split.labels.numel()
    layers = tuple(zeros.layers.values())
    return Score(float(right) / answers, float(loss) / answers, zeros.mean, layers)


def _like(x: Tensor, parameter: Tensor) -> Tensor:
    """Where the network is, and in its precision unless they are bytes."""
    return x.to(parameter) if x.is_floating_point() else x.to(parameter.device)
