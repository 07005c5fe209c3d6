"""What the residual networks share: where their activations come from, their norms, the scale of a branch, sizes."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from hush.nn.activations import from_design
from hush.theory import Design

__all__ = [
    "ActivationSource",
    "BranchScale",
    "activation_factory",
    "branch_scale_of",
    "check_sizes",
    "norm_over_features",
    "pre_activation_variance",
    "size_of",
]

# A design, or whatever makes an activation when it is called: nn.ReLU, nn.GELU, lambda: hush.nn.CReLU(1.6, 1.0). So a
# sparse network and its dense twin are made by the same code.
ActivationSource = Design | Callable[[], nn.Module]

BranchScale = float | Literal["1/sqrt(depth)", "1/depth", "learned"]


def activation_factory(activation: ActivationSource, dim: int = -1) -> Callable[[], nn.Module]:
    """What makes the activations of a network, one at each call; `dim` is where the units are, 1 behind a convolution.

    Raises:
        ValueError: if `activation` is neither a design nor makes a module when it is called.
    """
    if isinstance(activation, Design):
        return lambda: from_design(activation, dim=dim)
    if isinstance(activation, nn.Module) or not callable(activation):
        raise ValueError(
            f"the activation must be a design, or make a module when it is called, as nn.ReLU does, got {activation!r}."
        )
    made = activation()
    if not isinstance(made, nn.Module):
        raise ValueError(f"the activation must make a torch module when it is called, but it made {made!r}.")
    return activation


def pre_activation_variance(activation: ActivationSource) -> float:
    """q*, the variance an activation is to read: what the design says, and 1 for one that has no design."""
    return activation.q_star if isinstance(activation, Design) else 1.0


def branch_scale_of(branch_scale: BranchScale, branches: int) -> float | nn.Parameter:
    """β of a network of so many branches: a number, or with "learned" a parameter that starts at 1/√branches."""
    scales = {"1/sqrt(depth)": 1.0 / math.sqrt(branches), "1/depth": 1.0 / branches}
    if branch_scale == "learned":
        return nn.Parameter(torch.tensor(1.0 / math.sqrt(branches)))
    if isinstance(branch_scale, str):
        if branch_scale not in scales:
            known = ", ".join(repr(name) for name in (*scales, "learned"))
            raise ValueError(f"branch_scale must be a number or one of {known}, got {branch_scale!r}.")
        return scales[branch_scale]
    if not (math.isfinite(branch_scale) and branch_scale > 0.0):
        raise ValueError(f"branch_scale must be positive and finite, got {branch_scale}.")
    return float(branch_scale)


def norm_over_features(norm: Literal["rms", "layer"] | None, width: int, variance: float = 1.0) -> nn.Module:
    """A norm over the last dimension whose output starts at the given second moment; without one, nn.Identity.

    The variance matters where an activation reads the norm directly: nothing in between could bring it to q*.
    """
    if norm is None:
        return nn.Identity()
    if norm not in ("rms", "layer"):
        raise ValueError(f"norm must be 'rms', 'layer' or None, got {norm!r}.")
    module = nn.RMSNorm(width) if norm == "rms" else nn.LayerNorm(width)
    assert isinstance(module.weight, Tensor)
    nn.init.constant_(module.weight, math.sqrt(variance))
    return module


def size_of(name: str, given: int | None, designed: int | None) -> int:
    """A size that is given, or that of the design.

    Raises:
        ValueError: if there is neither, or it is below 1.
    """
    size = designed if given is None else given
    if size is None:
        raise ValueError(f"{name} is missing: give it here, or width and depth to hush.design.")
    check_sizes(**{name: size})
    return size


def check_sizes(**sizes: int) -> None:
    """Raise a ValueError if one of them is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}.")
