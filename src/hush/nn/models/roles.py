"""The draw of the networks of this package by what each of their layers is for.

`hush.init_` finds the same by data flow and needs a design; an activation that has none (ReLU, GELU, any other that the
registry knows) starts right by this. W ~ N(0, σ²/fan-in), biases 0. In a residual network:

reads the input, a norm or the stream        σ² = 1                   its output has the variance of what it reads
reads a norm and feeds φ                     σ² = q*                  so φ reads N(0, q*)
reads φ and writes to the stream             σ² = 1/E[φ′²]            the Edge of Chaos: a branch passes gradients on
reads φ times a linear layer (gated)         σ² = 1/(q*E[φ′²]+E[φ²])  the same, over both ways through the product
reads φ and feeds φ, no norm between         σ² = q*/E[φ²]            so φ reads N(0, q*)
reads φ and is the head                      σ² = 1/E[φ²]             logits of variance 1, less what pooling averages
In a chain, as the paper has it: the first layer σ² = 1, all others on the Edge of Chaos, which also draws biases.
"""

import math
from collections.abc import Iterator

import torch
from torch import nn

from hush.nn.models.residual_mlps import OneMatrixBlock, ResidualMLP, TwoMatrixBlock
from hush.nn.models.resnets import ResNet, ResNetBlock
from hush.nn.models.transformers import GPT, CausalAttention, FeedForward, GatedFeedForward
from hush.nn.recognise import activations_of, phi_of
from hush.nn.weights import fan_in
from hush.theory import Activation, edge_of_chaos

__all__ = ["draw_by_role_"]

_Layer = nn.Linear | nn.Conv1d | nn.Conv2d


@torch.no_grad()
def draw_by_role_(model: nn.Module, *, q_star: float = 1.0, generator: torch.Generator | None = None) -> None:
    """Draw every weight of a network that a function of `hush.nn` made, for the activation that is in it.

    Norms and learned branch scales keep what they start with. In front of a norm the scale of a layer is free.

    Raises:
        ValueError: if the model is another one, or its activation is not in the registry.
    """
    chain = isinstance(model, nn.Sequential) and hasattr(model, "layer1") and hasattr(model, "head")
    if not (chain or isinstance(model, (ResidualMLP, ResNet, GPT))):
        raise ValueError(
            "draw_by_role_ knows the networks that mlp, cnn, residual_mlp, resnet and gpt make, "
            f"got {type(model).__name__}; hush.init_ looks at any model."
        )
    if not (math.isfinite(q_star) and q_star > 0.0):
        raise ValueError(f"q_star must be positive and finite, got {q_star}.")
    phi = _activation(model)
    if isinstance(model, nn.Sequential):
        draws = _of_chain(model, phi, q_star)
    else:
        draws = ((layer, variance, 0.0) for layer, variance in _of_stream(model, phi, q_star))
    for layer, variance, bias_variance in draws:
        layer.weight.normal_(0.0, math.sqrt(variance / fan_in(layer.weight)), generator=generator)
        if layer.bias is not None:
            layer.bias.normal_(0.0, math.sqrt(bias_variance), generator=generator)
    if isinstance(model, GPT):
        for table in (model.token, model.position):
            table.weight.normal_(0.0, math.sqrt(0.5), generator=generator)


def _activation(model: nn.Module) -> Activation:
    """φ, the same in the whole network."""
    modules = [module for _, module in activations_of(model)]
    known = {phi for module in modules if (phi := phi_of(module)) is not None}
    if len(known) != 1:
        kinds = ", ".join(sorted({type(module).__name__ for module in modules})) or "no activation module"
        raise ValueError(f"the network must have one activation of the registry throughout, but it has {kinds}.")
    return known.pop()


def _of_chain(model: nn.Sequential, phi: Activation, q_star: float) -> Iterator[tuple[_Layer, float, float]]:
    """Every layer with its σ_w² and σ_b²."""
    edge = edge_of_chaos(phi, q_star)
    for name, layer in model.named_children():
        if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            yield layer, *((1.0, 0.0) if name == "layer1" else edge)


def _of_stream(model: nn.Module, phi: Activation, q_star: float) -> Iterator[tuple[_Layer, float]]:
    """Every layer with its σ², in the order of registration, which is that of the data."""
    slope = float(phi.slope_moment(1, q_star))
    square = float(phi.second_moment(q_star))
    if not (slope > 0.0 and square > 0.0):
        raise ValueError(f"{phi.name} is constant where it is used (q* = {q_star:g}): nothing would pass it.")
    for module in model.modules():
        match module:
            case ResidualMLP() | ResNet():
                yield module.stem, 1.0
            case OneMatrixBlock():
                yield module.linear, 1.0 / slope
            case TwoMatrixBlock() | FeedForward():
                yield module.up, q_star
                yield module.down, 1.0 / slope
            case GatedFeedForward():
                yield module.gate, q_star
                yield module.up, 1.0
                yield module.down, 1.0 / (q_star * slope + square)
            case CausalAttention():
                for layer in (module.query, module.key, module.value, module.out):
                    yield layer, 1.0
            case ResNetBlock():
                yield module.conv1, q_star / square if isinstance(module.norm2, nn.Identity) else 1.0 / slope
                yield module.conv2, 1.0 / slope
                if isinstance(module.shortcut, nn.Conv2d):
                    yield module.shortcut, 1.0
    head = model.head
    assert isinstance(head, nn.Linear)
    yield head, 1.0 / square if isinstance(model, ResNet) else 1.0
