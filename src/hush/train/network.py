"""From a config to its network, drawn by its seed.

A designed chain is drawn by `hush.init_`. Residual networks, and the dense ones to compare with, are drawn by the roles
of their layers, which gives a sparse network and its dense twin the same random numbers, each with its own σ.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from hush.nn import cnn, draw_by_role_, gpt, init_, mlp, residual_mlp, resnet
from hush.train.architectures import parse_branch_scale
from hush.train.config import TrainConfig

__all__ = ["build"]


def build(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of a config, for images of that shape; a gpt has its own shape."""
    model = _assemble(config, shape, classes)
    generator = torch.Generator().manual_seed(config.seed)
    if config.designed and not config.architecture.residual:
        init_(
            model,
            config.design(),
            _example(config, shape),
            weights=config.weights,  # type: ignore[arg-type]
            output=config.output,  # type: ignore[arg-type]
            generator=generator,
        )
        return model
    draw_by_role_(model, q_star=config.q_star, generator=generator)
    if config.output == "zero":
        head = model.head
        assert isinstance(head, nn.Linear)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
    return model


def _assemble(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    phi, depth, width = config.design(), config.depth, config.width
    if config.arch == "mlp":
        return mlp(math.prod(shape), classes, phi, width=width, depth=depth)
    if config.arch == "cnn":
        return cnn(shape[0], classes, phi, channels=width, depth=depth)
    stream: dict[str, Any] = {
        "norm": None if config.norm == "none" else config.norm,
        "branch_scale": parse_branch_scale(str(config.branch_scale)),
    }
    if config.arch == "residual_mlp":
        return residual_mlp(math.prod(shape), classes, phi, blocks=depth, width=width, hidden=config.hidden, **stream)
    if config.arch == "resnet":
        return resnet(shape[0], classes, phi, blocks=depth, channels=width, **stream)
    assert config.context is not None
    sizes: dict[str, Any] = {"layers": depth, "width": width, "heads": config.heads, "hidden": config.hidden}
    return gpt(phi, context=config.context, gated=config.gated, **sizes, **stream)


def _example(config: TrainConfig, shape: tuple[int, ...]) -> Tensor:
    """Any numbers do as an example: it only shows which layer is first and which is last."""
    example = torch.zeros(2, math.prod(shape)) if config.arch == "mlp" else torch.zeros(2, *shape)
    return example.normal_(generator=torch.Generator().manual_seed(0))
