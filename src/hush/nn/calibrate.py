"""Scale each layer once so that q^l, measured on a batch, is q*: h^l ← c h^l with c = √(q*/q^l).

One pass does it: the moment a layer has run, its weight and bias are scaled and so is the output it hands on, so the
next layer already sees calibrated activations. Removes the drift of one draw at finite width; what remains is the
spread between inputs.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from hush.nn.quiet_run import Arguments, call_on, quietly

__all__ = ["calibrate_"]


def calibrate_(model: nn.Module, layers: dict[str, nn.Module], batch: Arguments, q: float) -> dict[str, float]:
    """Scale `layers` in the order in which they run on `batch`; returns the factor of each that ran.

    Raises:
        ValueError: if a layer gives out zeros only, or not finite values.
    """
    names = {module: name for name, module in layers.items()}
    scales: dict[str, float] = {}
    done: set[int] = set()

    def scale(module: nn.Module, _: Any, output: Tensor) -> Tensor | None:
        name = names[module]
        # A weight used twice is scaled where it is used first.
        if name in scales or id(module.weight) in done:
            return None
        measured = float(output.to(torch.float64).square().mean())
        if not (math.isfinite(measured) and measured > 0.0):
            raise ValueError(f"{name} gives out a variance of {measured:g} on this batch; no scale brings it to {q:g}.")
        factor = math.sqrt(q / measured)
        scales[name] = factor
        for parameter in (module.weight, module.bias):
            if isinstance(parameter, Tensor):
                parameter.mul_(factor)
                done.add(id(parameter))
        return output * factor

    handles = [module.register_forward_hook(scale) for module in names]
    try:
        with quietly(model), torch.no_grad():
            call_on(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return scales
