"""The two things `hush diagnose` does: a fresh network on the digits, and a saved one."""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from hush.data import load
from hush.diagnose.diagnosis import Diagnosis
from hush.diagnose.verb import diagnose
from hush.nn import checkpoint, cnn, init_, mlp
from hush.nn.weights import Weights
from hush.theory import design as make_design

__all__ = ["diagnose_checkpoint", "diagnose_new"]


def diagnose_new(
    activation: str, sparsity: float, choice: dict[str, Any], network: str, weights: str, seed: int, inputs: int
) -> Diagnosis:
    """Design, build, initialise and diagnose a network on the digits; `choice` goes to `hush.design`."""
    if network not in ("mlp", "cnn"):
        raise ValueError(f"network must be mlp or cnn, got {network!r}.")
    design = make_design(activation, sparsity, **choice)
    model = mlp(64, 10, design) if network == "mlp" else cnn(1, 10, design)
    x, labels = _digits(inputs, design.input_variance)
    x = _shaped(x, model)
    generator = torch.Generator().manual_seed(seed)
    init_(model, design, x, weights=cast(Weights, weights), generator=generator)
    return diagnose(model, x, labels, design=design)


def diagnose_checkpoint(path: str | Path, inputs: int) -> Diagnosis:
    """Diagnose a saved network on the digits. Its weights speak for themselves: the theory takes σ_w, σ_b from them."""
    model, design = checkpoint.load(path)
    x, labels = _digits(inputs, design.input_variance)
    return diagnose(model, _shaped(x, model), labels)


def _digits(count: int, variance: float) -> tuple[Tensor, Tensor]:
    """The first `count` digits to learn from, and their labels."""
    split = load("digits", variance=variance).train
    if not 1 <= count <= len(split):
        raise ValueError(f"there are {len(split)} digits to learn from, got a count of {count}.")
    return split.images[:count], split.labels[:count]


def _shaped(x: Tensor, model: nn.Sequential) -> Tensor:
    """The digits as the network's first layer reads them."""
    first = model.layer1
    if isinstance(first, nn.Linear) and first.in_features == 64:
        return x
    if isinstance(first, nn.Conv2d) and first.in_channels == 1:
        return x.view(-1, 1, 8, 8)
    if isinstance(first, nn.Conv1d) and first.in_channels in (1, 8):
        return x.view(len(x), first.in_channels, -1)
    raise ValueError(f"the embedded digits are 8×8 and do not fit {first}; use hush.diagnose(model, inputs) instead.")
