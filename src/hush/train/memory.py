"""How much memory a network needs, asked before it is allocated."""

import os

from hush.train.config import TrainConfig
from hush.train.errors import RunError
from hush.train.network_size import count_activations, count_parameters

__all__ = ["check_memory", "needed_bytes"]


def needed_bytes(config: TrainConfig) -> int:
    """Of weights, gradients, the optimizer's state, and the activations of a batch before and after φ."""
    number = 8 if config.precision == "64-true" else 4
    copies = 2 + (2 if config.optimizer == "adamw" else 1 if config.momentum else 0)
    activations = count_activations(config) * (config.batch // config.devices)
    return number * (copies * count_parameters(config) + activations)


def check_memory(config: TrainConfig, available: int | None = None) -> None:
    """Raise a RunError if the network cannot fit into this machine's memory."""
    available = _physical_memory() if available is None else available
    needed = needed_bytes(config)
    if available and needed > available:
        layers = config.architecture.layers
        raise RunError(
            f"{config.depth} {layers} of width {config.width} have {count_parameters(config):.3g} parameters, and "
            f"training them takes at least {needed / 1e9:.3g} GB; this machine has {available / 1e9:.3g} GB: "
            f"take fewer or narrower {layers}."
        )


def _physical_memory() -> int:
    """In bytes; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
