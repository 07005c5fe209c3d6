"""A residual MLP: a stream of constant width to which every block adds its branch."""

from typing import Literal

from torch import Tensor, nn

from hush.nn.models.pieces import (
    ActivationSource,
    BranchScale,
    activation_factory,
    branch_scale_of,
    check_sizes,
    norm_over_features,
    pre_activation_variance,
    size_of,
)
from hush.theory import Design

__all__ = ["OneMatrixBlock", "ResidualMLP", "TwoMatrixBlock", "residual_mlp"]


class OneMatrixBlock(nn.Module):
    """x ← x + β(W φ(n(x)) + b): what the matrix reads is sparse."""

    def __init__(self, norm: nn.Module, phi: nn.Module, linear: nn.Linear, scale: float | nn.Parameter) -> None:
        super().__init__()
        self.norm, self.phi, self.linear = norm, phi, linear
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.linear(self.phi(self.norm(x)))
        return x + self.scale * branch


class TwoMatrixBlock(nn.Module):
    """x ← x + β(W₂ φ(W₁ n(x) + b₁) + b₂)."""

    def __init__(
        self, norm: nn.Module, up: nn.Linear, phi: nn.Module, down: nn.Linear, scale: float | nn.Parameter
    ) -> None:
        super().__init__()
        self.norm, self.up, self.phi, self.down = norm, up, phi, down
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.down(self.phi(self.up(self.norm(x))))
        return x + self.scale * branch


class ResidualMLP(nn.Module):
    """A linear stem into the stream, the blocks, and a linear head behind a final norm."""

    def __init__(self, stem: nn.Linear, blocks: nn.Sequential, norm: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.stem, self.blocks, self.norm, self.head = stem, blocks, norm, head

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(self.flatten(x))
        x = self.blocks(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def residual_mlp(
    in_features: int,
    out_features: int,
    activation: ActivationSource,
    *,
    blocks: int | None = None,
    width: int | None = None,
    hidden: int | None = None,
    norm: Literal["rms", "layer"] | None = "rms",
    branch_scale: BranchScale = "1/sqrt(depth)",
) -> ResidualMLP:
    """`blocks` residual blocks on a stream of `width` units. The weights are torch's own until `hush.init_` draws them.

    Arguments:
        activation: a design, or what makes an activation when it is called, such as nn.ReLU.
        blocks: by default the depth of the design.
        width: by default that of the design.
        hidden: None for blocks of one matrix, x + βWφ(n(x)); a number for blocks of two with so many units between.
        norm: in front of every branch and of the head.
        branch_scale: β; "depth" is the number of blocks.
    """
    design = activation if isinstance(activation, Design) else None
    blocks = size_of("blocks", blocks, design.depth if design else None)
    width = size_of("width", width, design.width if design else None)
    check_sizes(in_features=in_features, out_features=out_features, hidden=1 if hidden is None else hidden)
    phi = activation_factory(activation)

    def block() -> nn.Module:
        scale = branch_scale_of(branch_scale, blocks)
        if hidden is None:
            before = norm_over_features(norm, width, pre_activation_variance(activation))
            return OneMatrixBlock(before, phi(), nn.Linear(width, width), scale)
        before = norm_over_features(norm, width)
        return TwoMatrixBlock(before, nn.Linear(width, hidden), phi(), nn.Linear(hidden, width), scale)

    return ResidualMLP(
        nn.Linear(in_features, width),
        nn.Sequential(*(block() for _ in range(blocks))),
        norm_over_features(norm, width),
        nn.Linear(width, out_features),
    )
