"""Every way to draw weights, on every shape of layer: the variance is σ²/fan-in, the structure is what it says."""

import math

import pytest
import torch
from torch import nn

from hush.nn.weights import DRAWS, fan_in
from tests.helpers import assert_variance

LAYERS = {
    "square": nn.Linear(200, 200),
    "wide": nn.Linear(300, 100),
    "tall": nn.Linear(50, 300),
    "conv1d": nn.Conv1d(40, 60, 5),
    "grouped": nn.Conv2d(48, 96, 3, groups=4),
    "dilated": nn.Conv2d(30, 30, 3, dilation=2),
    "conv3d": nn.Conv3d(20, 30, 3),
    "depthwise": nn.Conv2d(128, 128, 3, groups=128),
    "even": nn.Conv1d(64, 64, 2),
}
each = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())


@each
@pytest.mark.parametrize("kind", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_variance(layer: nn.Module, kind: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    weight = torch.empty(layer.weight.shape, dtype=dtype)
    DRAWS[kind](weight, 7.5, getattr(layer, "groups", 1), generator)
    assert_variance(weight, 7.5 / fan_in(weight))


@each
def test_orthogonal_preserves_norms(layer: nn.Module, generator: torch.Generator) -> None:
    groups = getattr(layer, "groups", 1)
    weight = torch.empty(layer.weight.shape, dtype=torch.float64)
    DRAWS["orthogonal"](weight, 4.0, groups, generator)
    for block in weight.flatten(1).chunk(groups):
        rows, columns = block.shape
        gram = block @ block.T / 4.0 if rows <= columns else block.T @ block / 4.0 * columns / rows
        torch.testing.assert_close(gram, torch.eye(min(rows, columns), dtype=torch.float64))


@each
def test_delta_orthogonal_is_an_orthogonal_map_at_each_position(layer: nn.Module, generator: torch.Generator) -> None:
    groups = getattr(layer, "groups", 1)
    weight = torch.empty(layer.weight.shape, dtype=torch.float64)
    DRAWS["delta_orthogonal"](weight, 4.0, groups, generator)
    inputs, outputs = weight.shape[1], weight.shape[0] // groups
    # Entries at the centre have variance σ²/(channels in), all others are zero.
    assert int(torch.count_nonzero(weight)) == groups * inputs * outputs
    assert math.isclose(float(weight.square().sum()), 4.0 * weight.shape[0], rel_tol=1e-9) or outputs == 1
    centre = weight.flatten(2).sum(2) if weight.dim() > 2 else weight
    for block in centre.chunk(groups):
        gram = block @ block.T / 4.0 if outputs <= inputs else block.T @ block / 4.0 * inputs / outputs
        torch.testing.assert_close(gram, torch.eye(min(inputs, outputs), dtype=torch.float64))


def test_haar_signs_are_fair(generator: torch.Generator) -> None:
    """Without the correction by the signs of R the first diagonal entry would be of one sign."""
    weight = torch.empty(4, 4)
    positive = [float(DRAWS["orthogonal"](weight, 1.0, 1, generator)[0, 0]) > 0 for _ in range(200)]
    assert 70 <= sum(positive) <= 130
