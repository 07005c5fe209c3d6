"""Diagnose a network on the embedded digits, a fresh one or a saved one: what `hush diagnose` does."""

import os
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from hush.data import load, load_text
from hush.data.text import spread_windows
from hush.diagnose.comparison import diagnose_model
from hush.diagnose.diagnosis import Diagnosis
from hush.nn import GPT, ResidualMLP, ResNet, checkpoint, cnn, init_, mlp
from hush.nn.models.description import describe_network
from hush.nn.weights import Weights
from hush.theory import design as make_design

__all__ = ["diagnose_checkpoint", "diagnose_new"]

_PIXELS = 64  # of one digit, 8×8


def diagnose_new(
    activation: str, sparsity: float, choice: dict[str, Any], network: str, weights: str, seed: int, inputs: int
) -> Diagnosis:
    """Design, build, initialise and diagnose a network on the digits; `choice` goes to `hush.design`."""
    if network not in ("mlp", "cnn"):
        raise ValueError(f"network must be mlp or cnn, got {network!r}.")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed must fit into 64 bits, got {seed}.")
    _check_memory(choice["width"], choice["depth"], kernel=1 if network == "mlp" else 9)
    # The convolutions keep the size of the images, so their feature maps have a position for every pixel.
    design = make_design(activation, sparsity, **choice, positions=1 if network == "mlp" else _PIXELS)
    model = mlp(_PIXELS, 10, design) if network == "mlp" else cnn(1, 10, design)
    x, labels = _digits(inputs, design.input_variance)
    x = _shaped(x, model)
    generator = torch.Generator().manual_seed(seed)
    init_(model, design, x, weights=cast(Weights, weights), generator=generator)
    return diagnose_model(model, x, labels, design=design)


def diagnose_checkpoint(path: str | Path, inputs: int) -> Diagnosis:
    """Diagnose a saved network on the digits, a gpt on Python's text.

    Its weights speak for themselves: the theory takes σ_w, σ_b from them.
    """
    model, design = checkpoint.load(path)
    if isinstance(model, GPT):
        windows = spread_windows(load_text().train, model.context, inputs)
        return diagnose_model(model, windows.images, windows.labels, loss=_loss_of_bytes)
    x, labels = _digits(inputs, design.input_variance)
    return diagnose_model(model, _shaped(x, model), labels)


def _loss_of_bytes(outputs: Any, targets: Tensor | None) -> Tensor:
    assert targets is not None
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="sum")


def _check_memory(width: int, depth: int, kernel: int) -> None:
    """Refuse a network whose weights alone would not fit into the memory of this machine."""
    needed = 4 * kernel * width**2 * depth
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > 0.8 * there:
        raise ValueError(
            f"{depth} layers of width {width} have {needed / 1e9:.3g} GB of weights, and this machine has "
            f"{there / 1e9:.3g} GB of memory; hush design needs no network."
        )


def _digits(count: int, variance: float) -> tuple[Tensor, Tensor]:
    """The first `count` digits to learn from, and their labels."""
    split = load("digits", variance=variance).train
    if not 1 <= count <= len(split):
        raise ValueError(f"there are {len(split)} digits to learn from, got a count of {count}.")
    return split.images[:count], split.labels[:count]


def _shaped(x: Tensor, model: nn.Module) -> Tensor:
    """The digits as the network's first layer reads them."""
    first = model.stem if isinstance(model, (ResidualMLP, ResNet)) else model.layer1
    if isinstance(first, nn.Linear) and first.in_features == _PIXELS:
        return x
    if isinstance(first, nn.Conv2d) and first.in_channels == 1:
        positions = describe_network(model).get("positions")  # of a CNN whose head reads all of them
        if positions not in (None, _PIXELS):
            raise ValueError(
                f"the embedded digits have {_PIXELS} positions and the head reads {positions}; use "
                f"hush.diagnose(model, inputs) instead."
            )
        return x.view(-1, 1, 8, 8)
    if isinstance(first, nn.Conv1d) and first.in_channels in (1, 8):
        return x.view(len(x), first.in_channels, -1)
    raise ValueError(f"the embedded digits are 8×8 and do not fit {first}; use hush.diagnose(model, inputs) instead.")
