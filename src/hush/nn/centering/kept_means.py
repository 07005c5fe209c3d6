"""What the mean input gives stays where the bias puts it: b ← b − ΔW ā behind every step ΔW of a centred weight.

In the coordinates y = W(a − ā) + b′ a step of W cannot move what the mean input gives, b′ = b + Wā. The network stores
b, so behind each step of an optimizer b takes back what the step of W did to ā. torch calls one hook before and one
behind the step of any optimizer; a step that a gradient scaler leaves out calls neither.
"""

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hush.nn.centering.centered_layer import output_of_mean, waiting_layers

__all__ = ["listen_to_optimizers"]

_registered: list[Any] = []


def listen_to_optimizers() -> None:
    """From now on; once is enough."""
    if not _registered:
        _registered.append(register_optimizer_step_pre_hook(_before_step))
        _registered.append(register_optimizer_step_post_hook(_after_step))


def _before_step(*_: Any) -> None:
    """What changed a weight outside of a step, loading for instance, is not to be taken back."""
    for module, layer in waiting_layers():
        weight = module._parameters.get("weight")
        if weight is None or weight._version != layer.version:
            layer.forget()


@torch.no_grad()
def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    waiting = waiting_layers()
    if not waiting:
        return
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for module, layer in waiting:
        weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
        if weight is not None and bias is not None and {id(weight), id(bias)} <= own:
            assert layer.mean is not None
            assert layer.before is not None
            bias.sub_(output_of_mean(module, weight, layer.mean) - layer.before)
            layer.forget()
