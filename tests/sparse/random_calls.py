"""The ways a model is called. A call is a function (side, x, dice) → named tensors, which both twins must give alike.

What a call leaves behind (gradients, parameters, buffers, the state of torch's generator) is compared by the caller.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hush.sparse

from .random_layers import Looking

__all__ = ["CALLS", "FROZEN_CALLS", "STEP_CALLS", "Side"]

Results = dict[str, Tensor | None]


@dataclass
class Side:
    """One of the twins: its model, and what it is trained with."""

    model: nn.Module
    fused: bool = False  # whether hush.sparse.step makes its steps
    optimizer: torch.optim.Optimizer | None = None


def flat(out: Any) -> list[Tensor]:
    if isinstance(out, Tensor):
        return [out]
    return [t for part in out for t in flat(part)] if isinstance(out, Iterable) else []


def loss_of(out: Any) -> Tensor:
    """Nonlinear, so that gradients depend on the outputs."""
    return sum((t.float().square().mean() if t.numel() else t.float().sum()) + t.float().sin().sum() for t in flat(out))


def outputs(out: Any) -> Results:
    return {f"output {k}": t for k, t in enumerate(flat(out))}


def backward(side: Side, x: Tensor, dice: Random) -> Results:
    if dice.random() < 0.6:
        x = x.requires_grad_()
    # Half of the inputs are no leaves: an activation that works in place may then change them.
    inside = x * 1.0 if dice.random() < 0.5 else x
    out = side.model(inside)
    loss_of(out).backward()
    return {**outputs(out), "gradient of x": x.grad, "x": x.detach(), "what the model was given": inside}


def accumulate(side: Side, x: Tensor, dice: Random) -> Results:
    loss_of(side.model(x)).backward()
    loss_of(side.model(x * 0.5)).backward()
    return {}


def accumulate_together(side: Side, x: Tensor, dice: Random) -> Results:
    """Two forwards, then one backward through both."""
    (loss_of(side.model(x)) + loss_of(side.model(x.flip(-1)))).backward()
    return {}


def no_grad(side: Side, x: Tensor, dice: Random) -> Results:
    with torch.no_grad():
        return {**outputs(side.model(x)), "x": x}


def inference_mode(side: Side, x: Tensor, dice: Random) -> Results:
    with torch.inference_mode():
        return {k: v.clone() for k, v in outputs(side.model(x)).items() if v is not None}


def looked_at(side: Side, x: Tensor, dice: Random) -> Results:
    """The intermediate tensors of the forward, and the gradients at them."""
    with Looking() as seen:
        out = side.model(x)
    loss_of(out).backward()
    return {
        **outputs(out),
        **{f"intermediate {k}": h for k, h in enumerate(seen)},
        **{f"gradient at intermediate {k}": h.grad for k, h in enumerate(seen) if h.requires_grad},
    }


def hooked(side: Side, x: Tensor, dice: Random) -> Results:
    """The outputs of one or two inner modules as a forward hook sees them, and the gradients at them."""
    modules = list(side.model.modules())
    seen: list[Tensor] = []

    def see(module: nn.Module, args: Any, out: Any) -> None:
        for t in flat(out):
            if t.requires_grad:
                t.retain_grad()
            seen.append(t)

    handles = [m.register_forward_hook(see) for m in dice.sample(modules, min(dice.randint(1, 2), len(modules)))]
    try:
        out = side.model(x.requires_grad_())
        loss_of(out).backward()
    finally:
        for handle in handles:
            handle.remove()
    return {
        **outputs(out),
        **{f"seen {k}": h for k, h in enumerate(seen)},
        **{f"gradient at seen {k}": h.grad for k, h in enumerate(seen) if h.requires_grad},
    }


def tensor_hooked(side: Side, x: Tensor, dice: Random) -> Results:
    """Hooks on intermediate tensors that change the gradient on its way."""
    with Looking() as seen:
        out = side.model(x.requires_grad_())
    for h in seen:
        if h.requires_grad:
            h.register_hook(lambda g: 2.0 * g)
    loss_of(out).backward()
    return {**outputs(out), "gradient of x": x.grad}


def global_hooked(side: Side, x: Tensor, dice: Random) -> Results:
    seen: list[Tensor] = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: seen.extend(flat(o)))
    try:
        loss_of(side.model(x)).backward()
    finally:
        handle.remove()
    return {f"seen {k}": h for k, h in enumerate(seen)}


def gradients_asked_for(side: Side, x: Tensor, dice: Random) -> Results:
    with Looking() as seen:
        loss = loss_of(side.model(x.requires_grad_()))
    wanted = [x, *(h for h in seen if h.requires_grad)]
    if dice.random() < 0.5:
        wanted += [p for p in side.model.parameters() if p.requires_grad]
    return {f"gradient {k}": g for k, g in enumerate(torch.autograd.grad(loss, wanted, allow_unused=True))}


def backward_twice(side: Side, x: Tensor, dice: Random) -> Results:
    loss = loss_of(side.model(x))
    loss.backward(retain_graph=dice.random() < 0.7)  # otherwise the second raises
    loss.backward()
    return {}


def edited_before_backward(side: Side, x: Tensor, dice: Random) -> Results:
    """A parameter is changed in place between forward and backward, which autograd refuses where it matters."""
    loss = loss_of(side.model(x.requires_grad_()))
    with torch.no_grad():
        dice.choice(list(side.model.parameters())).mul_(1.1)
    loss.backward()
    return {"gradient of x": x.grad}


def double_backward(side: Side, x: Tensor, dice: Random) -> Results:
    (gradient,) = torch.autograd.grad(loss_of(side.model(x.requires_grad_())), x, create_graph=True)
    gradient.square().sum().backward()
    return {"gradient": gradient.detach(), "gradient of x": x.grad}


def output_in_place(side: Side, x: Tensor, dice: Random) -> Results:
    out = flat(side.model(x))[0]
    out.mul_(2.0).add_(0.1)
    loss_of(out).backward()
    return {"output": out}


def child(side: Side, x: Tensor, dice: Random) -> Results:
    """An inner module by itself, or a slice of a Sequential."""
    found = [m for m in side.model.modules() if isinstance(m, (nn.Linear, nn.Sequential, nn.ReLU))]
    if not found:
        return {}
    chosen = dice.choice(found)
    first = next((m for m in chosen.modules() if isinstance(m, nn.Linear)), None)
    if isinstance(chosen, nn.Sequential) and dice.random() < 0.5:
        chosen = chosen[: dice.randint(1, len(chosen))]
    y = torch.randn(5, first.in_features if first is not None else 6).to(x.dtype)
    out = chosen(y)
    if out.requires_grad:
        loss_of(out).backward()
    return {"output": out}


def methods(side: Side, x: Tensor, dice: Random) -> Results:
    if not hasattr(side.model, "encode"):
        return child(side, x, dice)
    code = side.model.encode(x)
    loss_of(code).backward()
    again = side.model.decode(code.detach())
    loss_of(again).backward()
    return {"code": code, "decoded": again}


def functional_call(side: Side, x: Tensor, dice: Random) -> Results:
    given = {k: (p.detach() * 0.9).requires_grad_() for k, p in side.model.named_parameters()}
    out = torch.func.functional_call(side.model, given, (x,))
    gradients = torch.autograd.grad(loss_of(out), list(given.values()), allow_unused=True)
    return {**outputs(out), **{f"gradient of {k}": g for k, g in zip(given, gradients, strict=True)}}


def func_grad(side: Side, x: Tensor, dice: Random) -> Results:
    given = {k: p.detach() for k, p in side.model.named_parameters()}
    gradients = torch.func.grad(lambda p: loss_of(torch.func.functional_call(side.model, p, (x,))))(given)
    return {f"gradient of {k}": g for k, g in gradients.items()}


def func_jvp(side: Side, x: Tensor, dice: Random) -> Results:
    out, tangent = torch.func.jvp(lambda y: flat(side.model(y))[0], (x,), (torch.ones_like(x),))
    return {"output": out, "tangent": tangent}


def func_vjp(side: Side, x: Tensor, dice: Random) -> Results:
    out, pull = torch.func.vjp(lambda y: flat(side.model(y))[0], x)
    return {"output": out, "pulled back": pull(torch.ones_like(out))[0]}


def func_vmap(side: Side, x: Tensor, dice: Random) -> Results:
    return {"output": torch.func.vmap(lambda y: flat(side.model(y))[0], randomness="same")(x)}


def autocast(side: Side, x: Tensor, dice: Random) -> Results:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = side.model(x)
    loss_of(out).backward()
    return outputs(out)


def checkpointed(side: Side, x: Tensor, dice: Random) -> Results:
    out = checkpoint(side.model, x.requires_grad_(), use_reentrant=dice.random() < 0.3)
    loss_of(out).backward()
    return {**outputs(out), "gradient of x": x.grad}


def saved_tensors_elsewhere(side: Side, x: Tensor, dice: Random) -> Results:
    """What the forward keeps is moved away and brought back as other memory."""
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()):
        out = side.model(x.requires_grad_())
    loss_of(out).backward()
    return {**outputs(out), "gradient of x": x.grad}


def other_default_dtype(side: Side, x: Tensor, dice: Random) -> Results:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dice.choice([torch.float64, torch.bfloat16]))
    try:
        return backward(side, x, dice)
    finally:
        torch.set_default_dtype(before)


def other_default_device(side: Side, x: Tensor, dice: Random) -> Results:
    with torch.device("meta"):
        return backward(side, x, dice)


def optimizer_step(side: Side, x: Tensor, dice: Random) -> Results:
    """With an optimizer that stays from step to step, also when parameters have been replaced meanwhile."""
    if side.optimizer is None:
        parameters = list(side.model.parameters())
        side.optimizer = dice.choice(
            [
                lambda: torch.optim.SGD(parameters, lr=0.01),
                lambda: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.1),
                lambda: torch.optim.AdamW(parameters, lr=0.01, eps=1e-2),
                lambda: torch.optim.LBFGS(parameters, lr=0.01, max_iter=2),
            ]
        )()
    optimizer = side.optimizer
    if isinstance(optimizer, torch.optim.LBFGS):

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(side.model(x))
            loss.backward()
            return loss

        optimizer.step(closure)
    else:
        loss_of(side.model(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {}


def fused_step(side: Side, x: Tensor, dice: Random) -> Results:
    """The one call that is written differently: hush.sparse.step for what the plain twin does in three lines."""
    assert side.optimizer is not None
    held = {id(p) for group in side.optimizer.param_groups for p in group["params"]}
    if not any(id(p) in held for p in side.model.parameters()):
        raise ValueError("Every parameter has been replaced: torch would step nothing, hush.sparse.step refuses.")
    loss = loss_of(side.model(x))
    if not loss.requires_grad:
        raise ValueError("torch says RuntimeError here, hush.sparse.step speaks of its argument.")
    if dice.random() < 0.3:
        loss = loss + 0.01 * sum(p.square().sum() for p in side.model.parameters())
    if side.fused:
        hush.sparse.step(side.model, loss)
    else:
        loss.backward()
        side.optimizer.step()
        side.optimizer.zero_grad()
    return {}


Call = Callable[[Side, Tensor, Random], Results]
FROZEN_CALLS: dict[str, Call] = {"no_grad": no_grad, "inference_mode": inference_mode}
STEP_CALLS: dict[str, Call] = {"hush.sparse.step": fused_step}
CALLS: dict[str, Call] = {
    **FROZEN_CALLS,
    "backward": backward,
    "backward, default dtype": other_default_dtype,
    "backward, default device": other_default_device,
    "two backwards": accumulate,
    "one backward of two": accumulate_together,
    "intermediates": looked_at,
    "forward hooks": hooked,
    "tensor hooks": tensor_hooked,
    "global hooks": global_hooked,
    "autograd.grad": gradients_asked_for,
    "retain_graph": backward_twice,
    "edit, then backward": edited_before_backward,
    "double backward": double_backward,
    "output in place": output_in_place,
    "child": child,
    "methods": methods,
    "functional_call": functional_call,
    "func.grad": func_grad,
    "func.jvp": func_jvp,
    "func.vjp": func_vjp,
    "func.vmap": func_vmap,
    "autocast": autocast,
    "checkpoint": checkpointed,
    "saved-tensor hooks": saved_tensors_elsewhere,
    "optimizer": optimizer_step,
}
