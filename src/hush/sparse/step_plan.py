"""What a backward does with the gradient of each parameter: writes it, applies it, or leaves it out.

The one place that knows how the kernels are told: per layer three bits of what is wanted, the update rules of weight
and bias, and seven addresses (their gradients, two optimizer states of each, and the mean inputs to centre by).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

from . import _native

__all__ = ["Part", "Rule", "StepPlan"]

Part = Literal["weight", "bias"]
_FIRST_STATE = {"weight": 2, "bias": 4}
_PLACE = {"weight": 0, "bias": 1}
_MEANS, _ADDRESSES = 6, 7
_KEEPS_MEAN = 4


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


class StepPlan:
    """Filled by `write` and `update`, read by a backend. It keeps the tensors it names."""

    def __init__(self, layers: int) -> None:
        self.wants = [0] * layers
        self.groups = [0] * (2 * layers)
        self.addresses = [0] * (_ADDRESSES * layers)
        self._rules: dict[Rule, int] = {Rule(): 0}
        self._kept: list[Tensor] = []

    @property
    def rules(self) -> list[_native.Optimizer]:
        return [_native.Optimizer.make(*rule) for rule in self._rules]

    def write(self, layer: int, part: Part, gradient: Tensor) -> None:
        """The gradient goes into this tensor. An empty one has no address, and nothing to write."""
        if gradient.numel():
            self.wants[layer] |= 1 << _PLACE[part]
            self.addresses[_ADDRESSES * layer + _PLACE[part]] = gradient.data_ptr()
            self._kept.append(gradient)

    def update(self, layer: int, part: Part, rule: Rule, states: tuple[Tensor, ...]) -> None:
        """The parameter takes a step by this rule, and so do the optimizer's states, which lie as it does."""
        self.wants[layer] |= 1 << _PLACE[part]
        self.groups[2 * layer + _PLACE[part]] = self._rules.setdefault(rule, len(self._rules))
        for i, state in enumerate(states):
            self.addresses[_ADDRESSES * layer + _FIRST_STATE[part] + i] = state.data_ptr()
            self._kept.append(state)

    def center(self, layer: int, mean: Tensor, *, keep_mean: bool) -> None:
        """The weight's gradient is centred by this mean input; with `keep_mean` the bias takes back, b ← b − ΔW ā,
        what the weight's step does to it."""
        self.addresses[_ADDRESSES * layer + _MEANS] = mean.data_ptr()
        self.wants[layer] |= _KEEPS_MEAN if keep_mean else 0
        self._kept.append(mean)
