"""The pieces random models are made of: activations, Linears and what stands between them, drawn by a dice."""

from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)
from torch.nn.utils import parametrizations, prune

import hush.nn as hn

WIDTHS = (4, 8, 16, 17, 32, 48)

# The tensors a forward shows while somebody looks: a model that calls `look` keeps nothing itself, so that it can be
# copied and pickled at any time.
_seen: list[Tensor] | None = None


class Looking:
    """While it is entered, `look` keeps the intermediate tensors and asks for the gradients at them."""

    def __enter__(self) -> list[Tensor]:
        global _seen
        _seen = []
        return _seen

    def __exit__(self, *_: object) -> None:
        global _seen
        _seen = None


def look(h: Tensor) -> Tensor:
    if _seen is not None:
        if h.requires_grad:
            h.retain_grad()
        _seen.append(h)
    return h


def activation(dice: Random) -> nn.Module:
    """Mostly those the engine knows, with some it does not."""
    threshold, clip = dice.choice([0.0, 0.05, 0.2, 0.4]), dice.choice([0.3, 0.8, 2.0])
    return dice.choice(
        [
            lambda: nn.ReLU(),
            lambda: nn.ReLU(),
            lambda: nn.ReLU(inplace=True),
            lambda: hn.ShiftedReLU(threshold),
            lambda: hn.CReLU(threshold, clip),
            lambda: hn.CReLU(threshold, clip),
            lambda: hn.SoftThreshold(threshold),
            lambda: hn.CST(threshold, clip),
            lambda: hn.FATReLU(threshold),
            lambda: hn.RelativeReLU(threshold),
            lambda: hn.RelativeCST(threshold, clip),
            lambda: nn.LeakyReLU(0.1),
            lambda: nn.GELU(),
            lambda: nn.Hardtanh(),
        ]
    )()


class HalvedReLU(nn.ReLU):
    """A subclass with a forward of its own: not the activation its parent is."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * super().forward(x)


class ShiftedLinear(nn.Linear):
    """A subclass with a forward of its own: not the Linear its parent is."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1.0


FUNCTIONS = {
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    "method": lambda h: h.relu(),
    "clamp": lambda h: h.clamp(min=0.0),
    "F.relu inplace": lambda h: F.relu(h, inplace=True),
    "relu_": lambda h: h.relu_(),
    "crelu": lambda h: hn.functional.crelu(h, 0.1, 0.7),
    "shifted": lambda h: hn.functional.shifted_relu(h, 0.2),
    "soft": lambda h: hn.functional.soft_threshold(h, 0.1),
    "cst": lambda h: hn.functional.cst(h, 0.1, 0.6),
    "fat": lambda h: hn.functional.fatrelu(h, 0.2),
    "gelu": F.gelu,
    "leaky": lambda h: F.leaky_relu(h, 0.1),
    "masked": lambda h: h * (h > 0.1),
    "where": lambda h: torch.where(h > 0.2, h, torch.zeros_like(h)),
}


def linear(dice: Random, inputs: int, outputs: int) -> nn.Linear:
    made = (ShiftedLinear if dice.random() < 0.05 else nn.Linear)(inputs, outputs, bias=dice.random() < 0.8)
    if dice.random() < 0.08:
        made.weight.requires_grad_(False)
    if made.bias is not None and dice.random() < 0.05:
        made.bias.requires_grad_(False)
    return made


def parametrised(dice: Random, inputs: int, outputs: int) -> nn.Linear:
    """A Linear whose weight is computed from something else, or whose weight is pruned."""
    made = nn.Linear(inputs, outputs)
    return dice.choice(
        [
            lambda: parametrizations.weight_norm(made),
            lambda: parametrizations.spectral_norm(made),
            lambda: parametrizations.orthogonal(made),
            lambda: torch.nn.utils.weight_norm(made),
            lambda: prune.l1_unstructured(made, "weight", amount=0.5),
            lambda: prune.random_structured(made, "weight", amount=0.3, dim=0),
        ]
    )()


def filler(dice: Random, width: int, dims: int) -> nn.Module:
    """What users have between an activation and a Linear."""
    choices = [
        nn.Identity,
        lambda: nn.Dropout(0.0),
        lambda: nn.Dropout(0.3),
        lambda: nn.LayerNorm(width),
        lambda: nn.Dropout(0.2, inplace=True),
    ]
    if dims == 2:
        choices += [lambda: nn.BatchNorm1d(width), nn.Flatten]
    return dice.choice(choices)()
