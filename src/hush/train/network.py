"""From a config to its network, drawn by `hush.init_` and its seed.

A sparse network and its dense twin get the same random numbers, each with its own σ.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from hush.nn import cnn, gpt, init_, mlp, residual_mlp, resnet
from hush.nn.models.transformers import BYTES
from hush.train.architectures import parse_branch_scale
from hush.train.config import TrainConfig

__all__ = ["build"]


def build(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of a config, for images of that shape; a gpt has its own shape."""
    # What init_ leaves as torch made it, embeddings say, is of the seed too.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = _assemble(config, shape, classes)
    init_(
        model,
        config.design(),
        _example(config, shape),
        weights=config.weights,  # type: ignore[arg-type]
        output=config.output,  # type: ignore[arg-type]
        generator=torch.Generator().manual_seed(config.seed),
    )
    return model


def _assemble(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    phi, depth, width = config.design(), config.depth, config.width
    if config.arch == "mlp":
        return mlp(math.prod(shape), classes, phi, width=width, depth=depth)
    if config.arch == "cnn":
        positions = math.prod(shape[1:]) if config.pool == "none" else None
        pool: Any = config.pool
        return cnn(shape[0], classes, phi, channels=width, depth=depth, pool=pool, positions=positions)
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
    """Numbers like standardised data: to a chain they only show which layer is first and which is last, and in a
    residual network the size of what each layer reads is measured on them."""
    generator = torch.Generator().manual_seed(0)
    if config.arch == "gpt":
        assert config.context is not None
        return torch.randint(0, BYTES, (4, config.context), generator=generator)
    count = 32 if config.architecture.residual else 2
    example = torch.zeros(count, math.prod(shape)) if config.arch.endswith("mlp") else torch.zeros(count, *shape)
    return example.normal_(generator=generator)
