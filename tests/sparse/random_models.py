"""Random models as users write them: each kind is a function (dice, width, dims) → module from `width` inputs.

torch's own generator draws the weights, the dice everything else, so a seed of both gives the same model again.
"""

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn

from .random_convolutions import Convolutions
from .random_layers import FUNCTIONS, WIDTHS, HalvedReLU, activation, filler, linear, look, parametrised

__all__ = ["KINDS"]


def _stack(dice: Random, width: int, dims: int, depth: int, make: Callable = linear) -> tuple[list[nn.Module], int]:
    """Layers of a chain and the width it ends with; some begin with the activation, some with the Linear."""
    layers: list[nn.Module] = []
    for k in range(depth):
        if k or dice.random() < 0.5:
            layers.append(HalvedReLU() if dice.random() < 0.03 else activation(dice))
        if dice.random() < 0.2:
            layers.append(filler(dice, width, dims))
        after = width if dice.random() < 0.6 else dice.choice(WIDTHS)
        layers.append(make(dice, width, after))
        width = after
    return layers, width


def sequential(dice: Random, width: int, dims: int) -> nn.Module:
    layers, _ = _stack(dice, width, dims, dice.randint(1, 5))
    while len(layers) > 2 and dice.random() < 0.4:  # some stretches become Sequentials of their own
        start = dice.randrange(len(layers) - 1)
        stop = dice.randint(start + 1, len(layers))
        layers[start:stop] = [nn.Sequential(*layers[start:stop])]
    return nn.Sequential(*layers)


def parametrised_weights(dice: Random, width: int, dims: int) -> nn.Module:
    some = [parametrised, linear]
    layers, _ = _stack(dice, width, dims, 3, lambda dice, i, o: dice.choice(some)(dice, i, o))
    return nn.Sequential(*layers)


class Residual(nn.Module):
    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        self.block = nn.Sequential(activation(dice), linear(dice, width, width), activation(dice))
        self.fc, self.out = linear(dice, width, width), linear(dice, width, 5)
        self.norm = dice.choice([nn.Identity(), nn.LayerNorm(width)])
        self.form = dice.randrange(4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(look(self.block(self.norm(x))))
        if self.form == 0:
            return self.out(x + h)
        if self.form == 1:
            h += x
            return self.out(torch.relu(h))
        if self.form == 2:
            return self.out(h.add(x).relu_())
        return x + self.block(x)


class OneMatrix(nn.Module):
    """A block that can be read off its forward; β is a number, a parameter, or none."""

    def __init__(self, dice: Random, width: int) -> None:
        super().__init__()
        self.norm = dice.choice(
            [nn.Identity, nn.LayerNorm, nn.RMSNorm, lambda w: nn.LayerNorm(w, elementwise_affine=False)]
        )(width)
        self.act, self.fc = activation(dice), linear(dice, width, width)
        self.beta = dice.choice([0.5, 1.0, nn.Parameter(torch.tensor(0.7))])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.beta * self.fc(self.act(self.norm(x)))


class TwoMatrices(OneMatrix):
    def __init__(self, dice: Random, width: int) -> None:
        super().__init__(dice, width)
        hidden = dice.choice(WIDTHS)
        self.up, self.fc = linear(dice, width, hidden), linear(dice, hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.up(self.norm(x)))
        return self.fc(h) * self.beta + x


class Nested(nn.Module):
    """A block whose branch is a module of its own."""

    def __init__(self, dice: Random, width: int) -> None:
        super().__init__()
        self.norm, self.branch = nn.LayerNorm(width), Mlp(dice, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(self.norm(x)) + x


class Mlp(nn.Module):
    def __init__(self, dice: Random, width: int) -> None:
        super().__init__()
        hidden = dice.choice(WIDTHS)
        self.up, self.act, self.down = linear(dice, width, hidden), activation(dice), linear(dice, hidden, width)
        self.drop = nn.Dropout(dice.choice([0.0, 0.0, 0.1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.drop(self.act(self.up(x))))


class Written(nn.Module):
    """A Sequential that is written out."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        layers, _ = _stack(dice, width, dims, dice.randint(1, 2))
        self.a, self.b, self.c, self.d, self.e, self.f = [*layers, *(nn.Identity() for _ in range(6 - len(layers)))]

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = self.b(x)
        return self.f(self.e(self.d(self.c(x))))


def written_out(dice: Random, width: int, dims: int) -> nn.Module:
    if dice.random() < 0.5:
        return Written(dice, width, dims)
    return nn.Sequential(*(Mlp(dice, width) for _ in range(dice.randint(1, 3))), Written(dice, width, dims))


def residual_blocks(dice: Random, width: int, dims: int) -> nn.Module:
    blocks: list[nn.Module] = [
        dice.choice([OneMatrix, TwoMatrices, Nested])(dice, width) for _ in range(dice.randint(1, 4))
    ]
    if dice.random() < 0.3:
        blocks.insert(dice.randint(0, len(blocks)), filler(dice, width, dims))
    return nn.Sequential(*blocks, linear(dice, width, 5))


class Gated(nn.Module):
    """φ(gate(x)) · up(x), which can be read off its forward."""

    def __init__(self, dice: Random, width: int) -> None:
        super().__init__()
        hidden = dice.choice(WIDTHS)
        self.gate, self.up = linear(dice, width, hidden), linear(dice, width, hidden)
        self.act, self.down = activation(dice), linear(dice, hidden, width)
        self.drop = nn.Dropout(dice.choice([0.0, 0.0, 0.1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.drop(self.act(self.gate(x)) * self.up(x)))


class GatedTheOtherWay(Gated):
    def forward(self, x: Tensor) -> Tensor:
        u = self.up(x)
        return self.down(u * self.act(self.drop(self.gate(x))))


def gated_blocks(dice: Random, width: int, dims: int) -> nn.Module:
    blocks: list[nn.Module] = [dice.choice([Gated, GatedTheOtherWay])(dice, width) for _ in range(dice.randint(1, 3))]
    if dice.random() < 0.5:
        blocks.insert(dice.randint(0, len(blocks)), filler(dice, width, dims))
    return nn.Sequential(*blocks, linear(dice, width, 5))


class Branches(nn.Module):
    """Two readers of one activation's output, joined by a product, a sum or a concatenation."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        self.act, self.left, self.right = activation(dice), linear(dice, width, width), linear(dice, width, width)
        self.gate, self.join = activation(dice), dice.choice(["product", "sum", "cat"])
        self.out = linear(dice, 2 * width if self.join == "cat" else width, 3)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        h = look(self.act(x))
        left, right = self.left(h), self.gate(self.right(h))
        if self.join == "product":
            return self.out(left * right)
        if self.join == "sum":
            return self.out(left + right), left
        return self.out(torch.cat([left, right], -1))


class EarlyExit(nn.Module):
    """Leaves after the first block in eval, or where the data say so."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        self.act1, self.fc1 = activation(dice), linear(dice, width, width)
        self.act2, self.fc2 = activation(dice), linear(dice, width, width)
        self.early, self.late = linear(dice, width, 4), linear(dice, width, 4)
        self.by_data = dice.random() < 0.5

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(self.act1(x))
        if (bool(x.sum() > 0) and bool(h.abs().mean() > 0.2)) if self.by_data else not self.training:
            return self.early(look(self.act2(h)))
        return self.late(self.fc2(self.act2(look(h))))


class Shared(nn.Module):
    """The same Linear and the same activation object at several places."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        self.act, self.fc, self.other = activation(dice), linear(dice, width, width), linear(dice, width, width)
        self.body = nn.Sequential(self.act, self.fc, self.act, self.other, self.act, self.fc)
        self.times = dice.randint(1, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = look(self.fc(self.act(x)))
        return self.body(x)


class Tied(nn.Module):
    """Two Linears with one weight; a decoder with the encoder's weight, transposed."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)
        self.b.weight = self.a.weight
        self.act, self.body = activation(dice), nn.Sequential(activation(dice), self.a, activation(dice), self.b)
        self.transposed = dice.random() < 0.5

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(self.act(x))
        return nn.functional.linear(self.act(look(h)), self.a.weight.t()) if self.transposed else h


class Autoencoder(nn.Module):
    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        code = dice.choice([3, 8])
        self.enc1, self.act1, self.enc2 = linear(dice, width, 16), activation(dice), linear(dice, 16, code)
        self.act2, self.dec1 = activation(dice), linear(dice, code, 16)
        self.act3, self.dec2 = activation(dice), linear(dice, 16, width)

    def encode(self, x: Tensor) -> Tensor:
        return self.enc2(self.act1(self.enc1(x)))

    def decode(self, z: Tensor) -> Tensor:
        return self.dec2(self.act3(look(self.dec1(self.act2(z)))))

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(look(self.encode(x)))


class LayerDrop(nn.Module):
    """Each layer of a ModuleList is left out with probability 0.4 in training."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        pairs = [(activation(dice), linear(dice, width, width)) for _ in range(dice.randint(2, 4))]
        self.layers = nn.ModuleList(nn.Sequential(*pair) if dice.random() < 0.5 else pair[1] for pair in pairs)
        self.act, self.head = activation(dice), linear(dice, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if not self.training or torch.rand(()).item() > 0.4:
                x = self.act(layer(x))
        return self.head(look(x))


class Functional(nn.Module):
    """Activations as functions, on tensors that were edited in place and not."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        self.names = [dice.choice(list(FUNCTIONS)) for _ in range(dice.randint(1, 4))]
        self.layers = nn.ModuleList(linear(dice, width, width) for _ in self.names)
        self.touch = dice.choice(["nothing", "add_", "item", "detach", "setitem"])

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        for name, layer in zip(self.names, self.layers, strict=True):
            h = look(FUNCTIONS[name](x))
            if self.touch == "add_":
                h = h + 0.1
                h.add_(0.2)
            elif self.touch == "item" and float(h.detach().sum()) > 1e6:
                return h
            elif self.touch == "detach":
                h = h + h.detach()
            elif self.touch == "setitem":
                h = h.clone()
                h[..., 0] = 1.0
            x = layer(h)
        return x


class Program(nn.Module):
    """A random dataflow: every step reads earlier values of one width and makes one more."""

    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        makers = [lambda: activation(dice), lambda: linear(dice, width, width), lambda: filler(dice, width, dims)]
        self.parts = nn.ModuleList(makers[k % 2 if k < 4 else 2]() for k in range(dice.randint(4, 6)))
        steps = []
        for k in range(1, dice.randint(5, 11)):
            late = [k - 1] * 3 + list(range(k))  # mostly the last value, so that stretches form
            kind = dice.choice(["part"] * 8 + ["add", "function", "look", "choose", "edit"])
            steps.append((kind, dice.choice(late), dice.randrange(k), dice.randrange(100)))
        self.steps, self.names = steps, list(FUNCTIONS)
        self.head = linear(dice, width, 5)

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for kind, a, b, number in self.steps:
            part = self.parts[number % len(self.parts)]
            if kind == "part":
                made = part(values[a])
            elif kind == "add":
                made = values[a] + values[b]
            elif kind == "function":
                made = FUNCTIONS[self.names[number % len(self.names)]](values[a].clone())
            elif kind == "look":
                made = look(values[a])
            elif kind == "choose":
                made = part(values[a]) if bool(values[b].mean() > 0.1) else values[a] * 2.0
            else:  # an edit in place, which plain autograd may refuse in the backward
                values[a].mul_(1.5)
                made = values[a]
            values.append(made)
        return self.head(values[-1])


class Attention(nn.Module):
    def __init__(self, dice: Random, width: int, dims: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 1, batch_first=True)
        self.act, self.fc = activation(dice), linear(dice, width, width)
        self.mlp = nn.Sequential(linear(dice, width, 24), activation(dice), linear(dice, 24, width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(x)
        h = x + self.attention(h, h, h, need_weights=False)[0]
        return self.mlp(look(h)) + self.fc(self.act(h))


def transformer(dice: Random, width: int, dims: int) -> nn.Module:
    def layer() -> nn.Module:
        return nn.TransformerEncoderLayer(
            width,
            1,
            24,
            dropout=dice.choice([0.0, 0.1]),
            activation=dice.choice(["relu", "gelu", torch.relu]),
            batch_first=True,
            norm_first=dice.random() < 0.5,
        )

    if dice.random() < 0.3:
        return nn.Sequential(layer(), activation(dice), linear(dice, width, 4))
    return layer() if dice.random() < 0.5 else nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False)


KINDS: dict[str, Callable[[Random, int, int], nn.Module]] = {
    "sequential": sequential,
    "residual": Residual,
    "residual blocks": residual_blocks,
    "gated blocks": gated_blocks,
    "written out": written_out,
    "branches": Branches,
    "early exit": EarlyExit,
    "shared layers": Shared,
    "tied weights": Tied,
    "autoencoder": Autoencoder,
    "layerdrop": LayerDrop,
    "functional": Functional,
    "program": Program,
    "attention": Attention,
    "transformer": transformer,
    "parametrised": parametrised_weights,
    "convolutions": Convolutions,
}
