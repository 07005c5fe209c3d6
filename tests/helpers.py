"""Domain assertions and models that several suites use."""

import math

import torch
from torch import Tensor, nn

import hush
from hush.nn.weights import fan_in


def assert_sparsity(x: Tensor, expected: float, tolerance: float = 0.01) -> None:
    """The share of exact zeros is `expected`, and every zero is +0.0."""
    share = float((x == 0).double().mean())
    assert abs(share - expected) <= tolerance, f"{share:.4f} of the values are zero, {expected} expected"
    assert not torch.signbit(x[x == 0]).any()


def assert_on_edge_of_chaos(layer: nn.Module, design: hush.Design, sigmas: float = 5.0) -> None:
    """Weights N(0, σ_w²/fan-in) and biases N(0, σ_b²), to within the sampling error of so many entries."""
    assert_variance(layer.weight, design.sigma_w2 / fan_in(layer.weight), sigmas)
    if layer.bias is not None:
        assert_variance(layer.bias, design.sigma_b2, sigmas)


def assert_variance(values: Tensor, variance: float, sigmas: float = 5.0) -> None:
    """The mean square of Gaussian `values` is `variance`, to within `sigmas` of its sampling error."""
    measured = float(values.detach().double().square().mean())
    assert abs(measured / variance - 1.0) <= sigmas * math.sqrt(2.0 / values.numel()), f"{measured} for {variance}"


def assert_left_as_it_was(model: nn.Module, before: dict[str, Tensor]) -> None:
    """Same parameters and buffers, no gradients, no hooks."""
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(parameter.grad is None for parameter in model.parameters())
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, phi: nn.Module, groups: int = 1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=2, dilation=2, groups=groups, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.phi = phi

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.phi(self.conv1(self.phi(self.norm(x)))))


class ResNet(nn.Module):
    """A small pre-activation ResNet in plain torch.nn; the head is registered before the body."""

    def __init__(self, phi: nn.Module, channels: int = 32) -> None:
        super().__init__()
        self.head = nn.Linear(channels, 10)
        self.blocks = nn.ModuleList([ResidualBlock(channels, phi), ResidualBlock(channels, phi, groups=4)])
        self.stem = nn.Conv2d(3, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    """One pre-norm transformer block on tokens, with the output tied to the embedding."""

    def __init__(self, phi: nn.Module, vocabulary: int = 50, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), phi, nn.Dropout(0.1), nn.Linear(4 * width, width))
        self.unembed = nn.Linear(width, vocabulary, bias=False)
        self.unembed.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.unembed(x + self.mlp(self.norm2(x)))


def digits(count: int, variance: float = 1.0) -> tuple[Tensor, Tensor]:
    """The first `count` of the embedded digits to learn from, and their labels."""
    split = hush.data.load("digits", variance=variance).train
    return split.images[:count], split.labels[:count]
