"""Tells every hold when an optimizer of its model has stepped, so that a training loop needs no line of its own.

torch calls one hook after the step of any optimizer. A hold goes by one of those that have a parameter of its model: so
several forwards for one step move nothing in between, a step that a gradient scaler leaves out moves nothing, and two
optimizers that share a model do not count twice. It goes over to another one that steps twice in a row.
"""

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

if TYPE_CHECKING:
    from hush.nn.holding.holder import Hold

__all__ = ["listen", "stop_listening"]

# In the order they were made, which all processes share; that of a WeakSet is one of addresses, and two holds whose
# counts are summed over processes would wait for each other.
_holds: "weakref.WeakKeyDictionary[Hold, None]" = weakref.WeakKeyDictionary()
_registered: list[Any] = []


def listen(hold: "Hold") -> None:
    if not _registered:
        _registered.append(register_optimizer_step_post_hook(_after_step))
    _holds[hold] = None


def stop_listening(hold: "Hold") -> None:
    _holds.pop(hold, None)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for hold in list(_holds):
        leads = hold.leader is not None and hold.leader() is optimizer
        if leads or _trains(optimizer, hold):
            latest, hold.latest = hold.latest, weakref.ref(optimizer)
            if latest is None or latest() is optimizer:
                hold.leader = hold.latest
            if hold.leader is not None and hold.leader() is optimizer:
                hold.step()


def _trains(optimizer: torch.optim.Optimizer, hold: "Hold") -> bool:
    own = {id(p) for p in hold.model.parameters()}
    return any(id(p) in own for group in optimizer.param_groups for p in group["params"])
