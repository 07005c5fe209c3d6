"""The paper's networks: an MLP and a CNN of equal layers, as plain `nn.Sequential`s.

What the paper leaves open is an argument here: bias in every layer (σ_b² > 0 needs one), "same" padding and stride 1
in the CNN, no pooling between layers, global average pooling before the head (`pool`), a linear head.
"""

from collections import OrderedDict
from typing import Literal

from torch import nn

from hush.nn.models.pieces import ActivationSource, activation_factory, check_sizes, size_of
from hush.theory import Design

__all__ = ["cnn", "mlp"]


def mlp(
    in_features: int, out_features: int, design: ActivationSource, *, width: int | None = None, depth: int | None = None
) -> nn.Sequential:
    """`depth` hidden layers h^l = W^l x^{l−1} + b^l, x^l = φ(h^l), of `width` units, and a linear head.

    Names in the state_dict: layer1.weight, layer1.bias, …, head.weight, head.bias. Inputs of more than one dimension
    are flattened. The weights are torch's own until `hush.init_` draws them.

    Arguments:
        design: or what makes an activation when it is called, such as nn.ReLU.
        width: by default that of the design.
        depth: likewise.
    """
    plan, phi = design if isinstance(design, Design) else None, activation_factory(design)
    width = size_of("width", width, plan.width if plan else None)
    depth = size_of("depth", depth, plan.depth if plan else None)
    check_sizes(in_features=in_features, out_features=out_features)
    modules: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for layer in range(1, depth + 1):
        modules[f"layer{layer}"] = nn.Linear(in_features if layer == 1 else width, width)
        modules[f"phi{layer}"] = phi()
    modules["head"] = nn.Linear(width, out_features)
    return nn.Sequential(modules)


def cnn(
    in_channels: int,
    out_features: int,
    design: ActivationSource,
    *,
    channels: int | None = None,
    depth: int | None = None,
    kernel: int = 3,
    dims: Literal[1, 2] = 2,
    padding: Literal["circular", "zeros"] = "circular",
    pool: Literal["average", "none"] = "average",
    positions: int | None = None,
) -> nn.Sequential:
    """`depth` convolutions of `channels` channels at full resolution, pooling, and a linear head.

    Circular padding is what the theory assumes; zero padding takes variance away at the borders. With 300 channels on
    32×32 images the paper's 50 layers cost 41 GMAC per image: on a CPU take fewer channels.

    Arguments:
        design: or what makes an activation when it is called, such as nn.ReLU.
        channels: by default the width of the design.
        depth: by default that of the design.
        kernel: odd, so that padding keeps the size.
        dims: 1 for sequences (batch, channels, length), 2 for images (batch, channels, height, width).
        pool: "average" takes the mean over positions before the head; "none" feeds all of them to it.
        positions: with pool="none", how many positions an input has (height × width).
    """
    plan, phi = design if isinstance(design, Design) else None, activation_factory(design, dim=1)
    channels = size_of("channels", channels, plan.width if plan else None)
    depth = size_of("depth", depth, plan.depth if plan else None)
    check_sizes(in_channels=in_channels, out_features=out_features)
    if kernel < 1 or kernel % 2 == 0:
        raise ValueError(f"kernel must be odd, so that padding keeps the size, got {kernel}.")
    if dims not in (1, 2):
        raise ValueError(f"dims must be 1 or 2, got {dims}.")
    if padding not in ("circular", "zeros"):
        raise ValueError(f"padding must be 'circular' or 'zeros', got {padding!r}.")
    if pool not in ("average", "none"):
        raise ValueError(f"pool must be 'average' or 'none', got {pool!r}.")
    if (pool == "none") != (positions is not None):
        raise ValueError(f"positions goes with pool='none' and only with it, got {positions} with pool={pool!r}.")
    convolution = nn.Conv1d if dims == 1 else nn.Conv2d
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for layer in range(1, depth + 1):
        modules[f"layer{layer}"] = convolution(
            in_channels if layer == 1 else channels, channels, kernel, padding=kernel // 2, padding_mode=padding
        )
        modules[f"phi{layer}"] = phi()
    if pool == "average":
        modules["pool"] = nn.AdaptiveAvgPool1d(1) if dims == 1 else nn.AdaptiveAvgPool2d(1)
    modules["flatten"] = nn.Flatten()
    modules["head"] = nn.Linear(channels * (positions or 1), out_features)
    return nn.Sequential(modules)
