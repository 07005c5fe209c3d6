"""What the mean input gives stays where the bias puts it: b ← b − ΔW ā behind every step ΔW of a centred weight.

In the coordinates y = W(a − ā) + b′ a step of W cannot move what the mean input gives, b′ = b + Wā. The network stores
b, so behind each step of an optimizer b takes back what the step of W did to ā. torch calls one hook before and one
behind the step of any optimizer; a step that a gradient scaler leaves out calls neither.
"""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hush.nn.centering.centered_layer import CenteredLayer, output_of_mean, waiting_layers

__all__ = ["listen_to_optimizers"]

_registered: list[Any] = []
_Pending = list[tuple[nn.Module, CenteredLayer, Tensor]]
_pending: "weakref.WeakKeyDictionary[torch.optim.Optimizer, _Pending]" = weakref.WeakKeyDictionary()


def listen_to_optimizers() -> None:
    """From now on; once is enough."""
    if not _registered:
        _registered.append(register_optimizer_step_pre_hook(_before_step))
        _registered.append(register_optimizer_step_post_hook(_after_step))


@torch.no_grad()
def _before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    waiting = waiting_layers()
    if not waiting:
        return
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    found: _Pending = []
    for module, layer in waiting:
        weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
        if weight is not None and bias is not None and {id(weight), id(bias)} <= own:
            assert layer.mean is not None
            found.append((module, layer, output_of_mean(module, weight, layer.mean)))
    _pending[optimizer] = found


@torch.no_grad()
def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for module, layer, before in _pending.pop(optimizer, []):
        assert layer.mean is not None
        moved = output_of_mean(module, module.weight, layer.mean) - before  # type: ignore[arg-type]
        module.bias.sub_(moved)  # type: ignore[operator]
        layer.forget()
