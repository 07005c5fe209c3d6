"""The networks of images under test: a stack of φ → Conv2d, and a CIFAR ResNet; both lie channels-last."""

from __future__ import annotations

import math
from functools import partial
from statistics import NormalDist

import torch
from torch import Tensor, nn

from hush.nn import CReLU, resnet

__all__ = [
    "IMAGE_ARCHS",
    "in_order",
    "random_convolutions",
    "random_images",
    "random_resnet",
]

IMAGE_ARCHS = ("conv", "resnet")
_SIDE = {"conv": 16, "resnet": 32}
_CLIP = 2.0


def in_order(model: nn.Sequential, memory_format: torch.memory_format) -> nn.Sequential:
    """The model, its weights laid out so, in place."""
    return model.to(memory_format=memory_format)  # type: ignore[call-overload,no-any-return]


def random_images(arch: str, batch: int, width: int, generator: torch.Generator) -> Tensor:
    """Gaussian images: for the stack with all its channels, for the ResNet with three."""
    side = _SIDE[arch]
    drawn = torch.randn(batch, width if arch == "conv" else 3, side, side, generator=generator)
    return drawn.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def random_convolutions(width: int, depth: int, sparsity: float, seed: int = 0) -> nn.Sequential:
    """depth × (CReLU → 3×3 convolution, zeros padded); every threshold is the quantile of what it reads."""
    generator = torch.Generator().manual_seed(seed)
    x = random_images("conv", 16, width, generator)
    layers: list[nn.Module] = []
    for _ in range(depth):
        sample = x.flatten()[:: max(1, x.numel() // 100_000)]
        phi = CReLU(max(0.0, float(torch.quantile(sample, sparsity))), _CLIP)
        active = phi(x)
        conv = nn.Conv2d(width, width, 3, padding=1)
        conv.weight.normal_(0, 1 / math.sqrt(9 * width * float(active.square().mean())), generator=generator)
        conv.bias.normal_(0, 0.1, generator=generator)  # type: ignore[union-attr]
        layers += [phi, conv]
        x = conv(active)
    return in_order(nn.Sequential(*layers), torch.channels_last)


def random_resnet(width: int, depth: int, sparsity: float, seed: int = 0) -> nn.Sequential:
    """`hush.nn.resnet` with batch norm, whose outputs are nearly Gaussian: the threshold is the quantile."""
    torch.manual_seed(seed)
    threshold = NormalDist().inv_cdf(sparsity)
    model = in_order(
        nn.Sequential(resnet(3, 10, partial(CReLU, threshold, _CLIP), blocks=depth, channels=width)),
        torch.channels_last,
    )
    _measure_norms(model, random_images("resnet", 64, width, torch.Generator().manual_seed(seed)))
    return model


@torch.no_grad()
def _measure_norms(model: nn.Sequential, images: Tensor) -> None:
    """What batch norms divide by in eval mode becomes what these images have."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None
    model(images)
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
