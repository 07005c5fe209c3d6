"""Random convolutional models: images are made of the inputs, mostly channels-last, and summed up in the end."""

from random import Random

import torch
from torch import Tensor, nn

from .random_layers import FUNCTIONS, activation, look

__all__ = ["Convolutions"]


class Convolutions(nn.Module):
    """Pairs of an activation and a Conv2d, in a Sequential or one by one, some with a sum around them."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        self.register_buffer("pattern", torch.randn(dice.choice([3, 4, 6]), dice.choice([3, 5])))
        self.channels_last, self.residual = dice.random() < 0.85, dice.random() < 0.4
        self.name = dice.choice(list(FUNCTIONS))
        layers: list[nn.Module] = []
        channels = width
        for _ in range(dice.randint(1, 3)):
            after = channels if self.residual else dice.choice([4, 8, 17])
            layers += [activation(dice), self._convolution(dice, channels, after)]
            channels = after
        self.body = nn.Sequential(*layers)
        self.last = self._convolution(dice, channels, 6)
        if dice.random() < 0.7:
            self.to(memory_format=torch.channels_last)

    def _convolution(self, dice: Random, inputs: int, outputs: int) -> nn.Conv2d:
        kernel = dice.choice([1, 2, 3, 3])
        same = self.residual
        return nn.Conv2d(
            inputs,
            outputs,
            kernel,
            stride=1 if same else dice.choice([1, 1, 2]),
            padding="same" if same else dice.choice([1, 2]),
            dilation=dice.choice([1] * 9 + [2]) if same else 1,
            groups=2 if inputs % 2 == outputs % 2 == 0 and dice.random() < 0.1 else 1,
            bias=dice.random() < 0.7,
            padding_mode=dice.choice(["zeros", "zeros", "circular", "reflect"]) if kernel == 3 and same else "zeros",
        )

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        h = rows[:, :, None, None] * self.pattern
        if self.channels_last:
            h = h.contiguous(memory_format=torch.channels_last)
        h = h + self.body(h) if self.residual else self.body(h)
        out = self.last(look(FUNCTIONS[self.name](h.clone())))
        # Of both signs: summing a thousand equal gradients one by one, torch's own bias gradient is off by 1e-4.
        height, width = out.shape[2:]
        weights = torch.cos(torch.arange(height * width, dtype=out.dtype, device=out.device)).view(height, width)
        return (out * weights).mean((2, 3)).reshape(*x.shape[:-1], 6)
