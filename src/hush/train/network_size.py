"""How large the network of a config is, counted without building it."""

import math

from hush.data.catalogue import CATALOGUE
from hush.train.config import TrainConfig

__all__ = ["count_activations", "count_parameters"]

_KERNEL = 9  # weights of a 3×3 convolution for each pair of channels
_BYTES = 256
_OF_NORM = {"rms": 1, "layer": 2, "batch": 2, "none": 0}  # parameters of each unit or channel


def count_parameters(config: TrainConfig) -> int:
    """Weights, biases, norms and learned scales."""
    if config.arch == "gpt":
        return _of_gpt(config)
    shape, classes, width = _shape(config), CATALOGUE[config.data].classes, config.width
    if config.arch == "resnet":
        return _of_resnet(config, shape[0], classes)
    if config.arch == "residual_mlp":
        ends = _linear(math.prod(shape), width) + _OF_NORM[str(config.norm)] * width + _linear(width, classes)
        one = _linear(width, width)
        branch = one if config.hidden is None else _linear(width, config.hidden) + _linear(config.hidden, width)
        return ends + config.depth * (_OF_NORM[str(config.norm)] * width + branch + _learned(config))
    taps = _KERNEL if config.arch == "cnn" else 1
    inputs = shape[0] if config.arch == "cnn" else math.prod(shape)
    read = width * (math.prod(shape[1:]) if config.pool == "none" else 1)
    return _linear(inputs * taps, width) + (config.depth - 1) * _linear(width * taps, width) + _linear(read, classes)


def count_activations(config: TrainConfig) -> int:
    """Numbers that one input leaves for the backward pass, before and after φ, at least."""
    depth, width = config.depth, config.width
    if config.arch == "gpt":
        assert config.context is not None
        return config.context * (depth * (8 * width + 2 * _hidden(config)) + 2 * _BYTES)
    positions = math.prod(_shape(config)[1:])
    if config.arch == "resnet":
        # Each stage has a quarter of the positions and twice the channels of the one before.
        return sum(4 * depth // 3 * width * 2**stage * positions // 4**stage for stage in range(3))
    if config.arch == "residual_mlp":
        return depth * (2 * width + 2 * (config.hidden or 0))
    return 2 * depth * width * (positions if config.arch == "cnn" else 1)


def _of_resnet(config: TrainConfig, channels: int, classes: int) -> int:
    norm, bias, width = _OF_NORM[str(config.norm)], config.norm == "none", config.width
    total = _KERNEL * channels * width + bias * width
    inputs = width
    for stage in range(3):
        outputs = width * 2**stage
        for _ in range(config.depth // 3):
            total += norm * (inputs + outputs) + _KERNEL * outputs * (inputs + outputs) + 2 * bias * outputs
            total += (inputs * outputs if inputs != outputs else 0) + _learned(config)
            inputs = outputs
    return total + norm * inputs + _linear(inputs, classes)


def _of_gpt(config: TrainConfig) -> int:
    assert config.context is not None
    width, hidden, norm = config.width, _hidden(config), _OF_NORM[str(config.norm)]
    fed = 3 * width * hidden if config.gated else _linear(width, hidden) + _linear(hidden, width)
    layer = 2 * norm * width + 4 * width**2 + fed + 2 * _learned(config)
    return (2 * _BYTES + config.context + norm) * width + config.depth * layer


def _hidden(config: TrainConfig) -> int:
    return config.hidden or 4 * config.width


def _learned(config: TrainConfig) -> int:
    return 1 if config.branch_scale == "learned" else 0


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _shape(config: TrainConfig) -> tuple[int, int, int]:
    channels, height, width = CATALOGUE[config.data].shape
    side = config.shrink * config.patch
    return channels * config.patch**2, height // side, width // side
