"""How much memory a network needs, asked before it is allocated."""

import math
import os

from hush.data.catalogue import CATALOGUE
from hush.train.config import TrainConfig
from hush.train.errors import RunError

__all__ = ["check_memory", "count_parameters", "needed_bytes"]

_KERNEL = 9  # weights of a 3×3 convolution for each pair of channels


def count_parameters(config: TrainConfig) -> int:
    """Weights and biases of the network of a config."""
    shape, classes = _shape(config), CATALOGUE[config.data].classes
    taps = _KERNEL if config.arch == "cnn" else 1
    inputs = shape[0] if config.arch == "cnn" else math.prod(shape)
    width = config.width
    first = inputs * taps * width + width
    return first + (config.depth - 1) * (width * taps * width + width) + width * classes + classes


def needed_bytes(config: TrainConfig) -> int:
    """Of weights, gradients, the optimizer's state, and the activations of a batch before and after φ."""
    number = 8 if config.precision == "64-true" else 4
    copies = 2 + (2 if config.optimizer == "adamw" else 1 if config.momentum else 0)
    positions = math.prod(_shape(config)[1:]) if config.arch == "cnn" else 1
    activations = 2 * config.depth * config.width * positions * (config.batch // config.devices)
    return number * (copies * count_parameters(config) + activations)


def check_memory(config: TrainConfig, available: int | None = None) -> None:
    """Raise a RunError if the network cannot fit into this machine's memory."""
    available = _physical_memory() if available is None else available
    needed = needed_bytes(config)
    if available and needed > available:
        raise RunError(
            f"{config.depth} layers of width {config.width} have {count_parameters(config):.3g} parameters, and "
            f"training them takes at least {needed / 1e9:.3g} GB; this machine has {available / 1e9:.3g} GB: "
            "take fewer or narrower layers."
        )


def _shape(config: TrainConfig) -> tuple[int, int, int]:
    channels, height, width = CATALOGUE[config.data].shape
    return channels, height // config.shrink, width // config.shrink


def _physical_memory() -> int:
    """In bytes; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
