"""The networks of `sparse_networks.py`: their data, their size, and one recipe for each, chosen on its ReLU or GELU."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import hush
import hush.nn as hn
from hush.data import load, load_text
from hush.data.text import spread_windows, windows_at

__all__ = ["LARGE", "NETWORKS", "Batches", "Network"]

CONTEXT, BLOCKS_OF_RESNET = 128, 3
# At this q* what φ reads is ten times as large, and the weights behind φ ten times as small. The network computes the
# same, but relative to their size the weights in front of φ learn slower by that much, and those behind it faster.
LARGE = 100.0
# Images are moved by up to so many pixels, and mirrored, each time they are shown.
SHIFT = 2


@dataclass(frozen=True)
class Batches:
    """What one network learns from and is scored on; `train` yields a batch for each step."""

    train: Callable[[int, int, int], Iterator[tuple[Tensor, Tensor]]]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Network:
    """One kind of network on one data set.

    Attributes:
        dense: the activations without a threshold that it is compared with.
        rate: the highest rate; `sgd` takes it with Nesterov momentum 0.9 and weight decay 5e-4, or else AdamW does.
        build: from the name of an activation, a sparsity or None, a seed, and q*.
    """

    name: str
    title: str
    dense: tuple[str, ...]
    steps: int
    batch: int
    rate: float
    sgd: bool
    data: Callable[[], Batches]
    build: Callable[[str, float | None, int, float], nn.Module]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.sgd:
            return torch.optim.SGD(model.parameters(), lr=self.rate, momentum=0.9, nesterov=True, weight_decay=5e-4)
        return torch.optim.AdamW(model.parameters(), lr=self.rate, fused=True)


def _images(name: str, flat: bool) -> Batches:
    splits = load(name, flat=flat, validation=0.0)
    images, labels = splits.train.images, splits.train.labels

    def train(batch: int, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        order = torch.empty(0, dtype=torch.long)
        for _ in range(steps):
            if len(order) < batch:
                order = torch.randperm(len(images), generator=generator)
            part, order = order[:batch], order[batch:]
            yield images[part] if flat else _moved(images[part], generator), labels[part]

    return Batches(train, (splits.test.images, splits.test.labels))


def _moved(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by some pixels, zeros coming in at its border, and every second one mirrored."""
    count, _, height, width = images.shape
    padded = nn.functional.pad(images, (SHIFT,) * 4).permute(0, 2, 3, 1)
    rows, columns = (torch.randint(0, 2 * SHIFT + 1, (count, 1), generator=generator) for _ in range(2))
    across = torch.arange(width).expand(count, width)
    mirrored = torch.rand(count, 1, generator=generator) < 0.5
    across = torch.where(mirrored, across.flip(1), across) + columns
    down = torch.arange(height) + rows
    moved = padded[torch.arange(count)[:, None, None], down[:, :, None], across[:, None, :]]
    # The memory is channels-last, which is how torch convolves fastest here.
    return moved.permute(0, 3, 1, 2)


def _text() -> Batches:
    text = load_text()

    def train(batch: int, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            starts = torch.randint(0, len(text.train) - CONTEXT, (batch,), generator=generator)
            part = windows_at(text.train, starts, CONTEXT)
            yield part.images, part.labels

    test = spread_windows(text.test, CONTEXT, 1024)
    return Batches(train, (test.images, test.labels))


_MNIST = cache(lambda: _images("mnist", flat=True))
_FASHION = cache(lambda: _images("fashion_mnist", flat=True))
_CIFAR = cache(lambda: _images("cifar10", flat=False))
_TEXT = cache(_text)


def _drawn(model: nn.Module, design: hush.Design, seed: int, batches: Batches) -> nn.Module:
    # init_ reads no labels, only how large a layer's inputs are.
    hush.init_(model, design, batches.test[0][:64], generator=torch.Generator().manual_seed(seed))
    return model


def _residual_mlp(data: Callable[[], Batches], blocks: int, hidden: int | None) -> Any:
    def build(activation: str, sparsity: float | None, seed: int, q_star: float = 1.0) -> nn.Module:
        kind: dict[str, Any] = {"block": "feedforward", "hidden": hidden} if hidden else {"block": "residual"}
        design = hush.design(activation, sparsity, norm="rms", width=300, depth=blocks, q_star=q_star, **kind)
        torch.manual_seed(seed)
        return _drawn(hn.residual_mlp(784, 10, design, hidden=hidden), design, seed, data())

    return build


def _resnet(channels: int) -> Any:
    def build(activation: str, sparsity: float | None, seed: int, q_star: float = 1.0) -> nn.Module:
        design = hush.design(
            activation,
            sparsity,
            block="residual",
            norm="layer",
            width=channels,
            depth=BLOCKS_OF_RESNET,
            positions=256,
            q_star=q_star,
        )
        torch.manual_seed(seed)
        model = hn.resnet(3, 10, design)
        # The stream begins at 16 × 16: a step costs a quarter, for which it can have twice the channels.
        model.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False)
        return _drawn(model, design, seed, _CIFAR()).to(memory_format=torch.channels_last)

    return build


def _gpt(layers: int, width: int) -> Any:
    def build(activation: str, sparsity: float | None, seed: int, q_star: float = 1.0) -> nn.Module:
        design = hush.design(
            activation,
            sparsity,
            block="feedforward",
            norm="rms",
            width=width,
            depth=layers,
            hidden=4 * width,
            branch_scale=1 / math.sqrt(2 * layers),
            q_star=q_star,
        )
        torch.manual_seed(seed)
        return _drawn(hn.gpt(design, context=CONTEXT), design, seed, _TEXT())

    return build


def _mlps() -> Iterator[Network]:
    for name, title, data in (("mnist", "MNIST", _MNIST), ("fashion", "Fashion-MNIST", _FASHION)):
        for blocks, hidden, kind in ((30, 300, "two"), (60, None, "one")):
            yield Network(
                f"{name}_{kind}",
                f"{title}, {blocks} residual blocks of {kind} {'matrix' if kind == 'one' else 'matrices'}, 300 units",
                dense=("relu",),
                steps=235 * 3,
                batch=256,
                rate=2e-3,
                sgd=False,
                data=data,
                build=_residual_mlp(data, blocks, hidden),
            )


def _resnets() -> Iterator[Network]:
    # The wide one is there to see what width does to the gap, and has half the steps.
    for name, channels, epochs in (("cifar_resnet", 32, 8), ("cifar_wide", 64, 4)):
        yield Network(
            name,
            f"CIFAR-10, pre-activation ResNet of 3 blocks behind BatchNorm, {channels} channels on 16 × 16",
            dense=("relu",),
            steps=782 * epochs,
            batch=64,
            rate=0.1,
            sgd=True,
            data=_CIFAR,
            build=_resnet(channels),
        )


NETWORKS = {
    network.name: network
    for network in (
        *_mlps(),
        *_resnets(),
        Network(
            "text_gpt",
            "Python's own sources, byte transformer of 4 layers × 128",
            dense=("relu", "gelu"),
            steps=2000,
            batch=8,
            rate=2e-3,
            sgd=False,
            data=_TEXT,
            build=_gpt(4, 128),
        ),
    )
}
