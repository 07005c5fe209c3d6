"""A pre-activation ResNet for small images, as He et al. (2016) built it for CIFAR: three stages, 6n + 2 layers."""

import math
from typing import Literal

from torch import Tensor, nn

from hush.nn.models.pieces import (
    ActivationSource,
    BranchScale,
    activation_factory,
    branch_scale_of,
    check_sizes,
    pre_activation_variance,
    size_of,
)
from hush.theory import Design

__all__ = ["ResNet", "ResNetBlock", "resnet"]

_STAGES = 3


class ResNetBlock(nn.Module):
    """x ← shortcut(x) + β conv₂ φ(n₂(conv₁ φ(n₁(x))))."""

    def __init__(
        self,
        norm1: nn.Module,
        phi1: nn.Module,
        conv1: nn.Conv2d,
        norm2: nn.Module,
        phi2: nn.Module,
        conv2: nn.Conv2d,
        shortcut: nn.Module,
        scale: float | nn.Parameter,
    ) -> None:
        super().__init__()
        self.norm1, self.phi1, self.conv1 = norm1, phi1, conv1
        self.norm2, self.phi2, self.conv2 = norm2, phi2, conv2
        self.shortcut = shortcut
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv1(self.phi1(self.norm1(x)))
        branch: Tensor = self.conv2(self.phi2(self.norm2(inner)))
        stream: Tensor = self.shortcut(x)
        return stream + self.scale * branch


class ResNet(nn.Module):
    """A convolution into the stream, the blocks, a last norm and activation, the mean over positions, a linear head."""

    def __init__(
        self, stem: nn.Conv2d, blocks: nn.Sequential, norm: nn.Module, phi: nn.Module, head: nn.Linear
    ) -> None:
        super().__init__()
        self.stem, self.blocks, self.norm, self.phi = stem, blocks, norm, phi
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.blocks(x)
        x = self.phi(self.norm(x))
        logits: Tensor = self.head(self.flatten(self.pool(x)))
        return logits


def resnet(
    in_channels: int,
    out_features: int,
    activation: ActivationSource,
    *,
    blocks: int | None = None,
    channels: int | None = None,
    norm: Literal["batch", "layer"] | None = "batch",
    branch_scale: BranchScale = "1/sqrt(depth)",
    padding: Literal["circular", "zeros"] = "zeros",
) -> ResNet:
    """Three stages of `blocks`/3 blocks each; the second and the third halve the image and double the channels.

    The weights are torch's own until `hush.init_` draws them. The convolutions have no bias where a norm follows that
    has one.

    Arguments:
        activation: a design, or what makes an activation when it is called, such as nn.ReLU.
        blocks: of all three stages together, 3n, which makes 6n + 2 layers; by default the depth of the design.
        channels: of the first stage; by default the width of the design.
        norm: "batch", "layer" (over the channels and positions of an image) or None.
        branch_scale: β; "depth" is the number of blocks. He et al. have 1.
        padding: circular is what the theory assumes; zeros take variance away at the borders, and are usual.
    """
    design = activation if isinstance(activation, Design) else None
    blocks = size_of("blocks", blocks, design.depth if design else None)
    channels = size_of("channels", channels, design.width if design else None)
    check_sizes(in_channels=in_channels, out_features=out_features)
    if blocks % _STAGES:
        raise ValueError(f"blocks must be a multiple of {_STAGES}, as many in each stage, got {blocks}.")
    if norm not in ("batch", "layer", None):
        raise ValueError(f"norm must be 'batch', 'layer' or None, got {norm!r}.")
    if padding not in ("circular", "zeros"):
        raise ValueError(f"padding must be 'circular' or 'zeros', got {padding!r}.")
    phi = activation_factory(activation, dim=1)
    variance = pre_activation_variance(activation)

    def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
        return nn.Conv2d(inputs, outputs, 3, stride, padding=1, padding_mode=padding, bias=norm is None)

    def block(inputs: int, outputs: int, stride: int) -> ResNetBlock:
        same = inputs == outputs and stride == 1
        return ResNetBlock(
            _norm_over_channels(norm, inputs, variance),
            phi(),
            convolution(inputs, outputs, stride),
            _norm_over_channels(norm, outputs, variance),
            phi(),
            convolution(outputs, outputs),
            nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False),
            branch_scale_of(branch_scale, blocks),
        )

    stages = []
    inputs = channels
    for stage in range(_STAGES):
        outputs = channels * 2**stage
        for number in range(blocks // _STAGES):
            stages.append(block(inputs, outputs, stride=2 if stage and number == 0 else 1))
            inputs = outputs
    return ResNet(
        convolution(in_channels, channels),
        nn.Sequential(*stages),
        _norm_over_channels(norm, inputs, variance),
        phi(),
        nn.Linear(inputs, out_features),
    )


def _norm_over_channels(norm: Literal["batch", "layer"] | None, channels: int, variance: float) -> nn.Module:
    """Its output starts at the given second moment, because an activation reads it."""
    if norm is None:
        return nn.Identity()
    module = nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(1, channels)
    nn.init.constant_(module.weight, math.sqrt(variance))
    return module
