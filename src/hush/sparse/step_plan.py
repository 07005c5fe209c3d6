"""What a backward does with the gradient of each parameter: writes it, applies it, or leaves it out.

The one place that knows how the kernels are told: per layer, for each of its parameters in order, a bit whether it is
wanted, an update rule, and three addresses (the gradient, then two optimizer states); and where a weight's gradient is
to be centred, the address of the mean inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor

from . import _native

__all__ = ["PARTS", "Part", "Rule", "States", "StepPlan", "place_of"]

# Those of a layer of a chain are the first two; a residual block has the others too: its norm's gain and shift, β, and
# the first of two matrices with its bias.
Part = Literal["weight", "bias", "gain", "shift", "scale", "inner_weight", "inner_bias"]
PARTS: tuple[Part, ...] = ("weight", "bias", "gain", "shift", "scale", "inner_weight", "inner_bias")
_KEEPS_MEAN = 1 << 2  # of a layer of a chain, behind its two parts


def place_of(layer: int, part: Part, parts: int = 2) -> int:
    """The place of a parameter among all, where every layer has so many parts."""
    return parts * layer + PARTS.index(part)


class Rule(NamedTuple):
    """One step of an optimizer, as the kernels take it; the default writes gradients and updates nothing."""

    kind: int = 1
    lr: float = 0.0
    weight_decay: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    beta1: float = 0.0
    beta2: float = 0.0
    eps: float = 0.0
    correction1: float = 1.0
    correction2: float = 1.0


class States(NamedTuple):
    """The optimizer's states of one parameter, which lie as it does, and where."""

    tensors: tuple[Tensor, ...] = ()
    addresses: tuple[int, ...] = ()


class StepPlan:
    """Filled by `write` and `update`, read by a backend. It keeps the tensors it names."""

    def __init__(self, layers: int, parts: int = 2) -> None:
        self._parts = parts
        self.wants = [0] * layers
        self.groups = [0] * (parts * layers)
        self.addresses = [0] * (3 * parts * layers)
        self.means: list[int] = []  # one for each layer as soon as one is centred
        self._rules: dict[Rule, int] = {Rule(): 0}
        self._kept: list[Tensor | Sequence[States]] = []

    @property
    def rules(self) -> list[_native.Optimizer]:
        return [_native.Optimizer.make(*rule) for rule in self._rules]

    def write(self, layer: int, part: Part, gradient: Tensor) -> None:
        """The gradient goes into this tensor. An empty one has no address, and nothing to write."""
        if gradient.numel():
            place = place_of(layer, part, self._parts)
            self.wants[layer] |= 1 << place % self._parts
            self.addresses[3 * place] = gradient.data_ptr()
            self._kept.append(gradient)

    def update(self, places: Sequence[int], rules: Sequence[Rule], states: Sequence[States]) -> None:
        """The parameters at these places (`place_of`) take a step by their rules, and so do the optimizer's states."""
        wants, groups, addresses, parts = self.wants, self.groups, self.addresses, self._parts
        latest, number = None, 0
        for place, rule in zip(places, rules, strict=True):
            if rule is not latest:  # neighbours share theirs, and hashing eleven numbers takes its time
                latest, number = rule, self._rules.setdefault(rule, len(self._rules))
            groups[place] = number
            wants[place // parts] |= 1 << place % parts
        for place, (_, where) in zip(places, states, strict=True):
            addresses[3 * place + 1 : 3 * place + 1 + len(where)] = where
        self._kept.append(states)

    def center(self, layer: int, mean: Tensor, *, keep_mean: bool) -> None:
        """The weight's gradient is centred by this mean input; with `keep_mean` the bias takes back, b ← b − ΔW ā,
        what the weight's step does to it."""
        self.means = self.means or [0] * len(self.wants)
        self.means[layer] = mean.data_ptr()
        self.wants[layer] |= _KEEPS_MEAN if keep_mean else 0
        self._kept.append(mean)
