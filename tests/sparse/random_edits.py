"""What users do to a model between two calls. An edit is a function (model, dice) → model, given to both twins alike.

Modules are addressed by their place in `named_modules()`, so the same dice meets the same module in both. An edit that
finds nothing to act on leaves the model alone.
"""

import copy
import io
import pickle
from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .random_layers import activation, linear

__all__ = ["COPIES", "EDITS"]

Model = nn.Module
Edit = Callable[[Model, Random], Model]
_PLAIN_PARENTS = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


def _slots(model: Model, kind: type | tuple[type, ...], but: tuple[type, ...] = ()) -> list[tuple[Model, str, Model]]:
    """(parent, name, child) of the children of a kind; the parts of a parametrised weight are not among them."""
    return [
        (parent, name, child)
        for parent in model.modules()
        if not isinstance(parent, (parametrize.ParametrizationList, *but))
        for name, child in parent.named_children()
        if isinstance(child, kind)
    ]


def _linears(model: Model) -> list[nn.Linear]:
    """Those whose weight is a parameter of their own."""
    found = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return [m for m in found if isinstance(m._parameters.get("weight"), nn.Parameter)]


def _activations(model: Model) -> list[tuple[Model, str, Model]]:
    known = [s for s in _slots(model, nn.Module) if "activation" in type(s[2]).__module__]
    return [s for s in known if not isinstance(s[2], nn.MultiheadAttention)]


def _like(model: Model, tensor: Tensor) -> Tensor:
    """Fresh values for a parameter, of a size that keeps activations alive."""
    return torch.randn(tensor.shape).to(tensor.dtype) / max(tensor.shape[-1], 1) ** 0.5


def replace_linear(model: Model, dice: Random) -> Model:
    slots = _slots(model, nn.Linear, _PLAIN_PARENTS)
    if slots:
        parent, name, child = dice.choice(slots)
        fresh = linear(dice, child.in_features, child.out_features).to(next(model.parameters()).dtype)
        if isinstance(parent, nn.Sequential) and dice.random() < 0.5:
            parent[int(name)] = fresh
        else:
            setattr(parent, name, fresh)
    return model


def replace_activation(model: Model, dice: Random) -> Model:
    slots = _activations(model)
    if slots:
        parent, name, _ = dice.choice(slots)
        setattr(parent, name, activation(dice))
    return model


def swap_head(model: Model, dice: Random) -> Model:
    """The last Linear gets another number of outputs, or an Identity takes its place."""
    slots = _slots(model, nn.Linear, _PLAIN_PARENTS)
    if slots:
        parent, name, child = slots[-1]
        head = nn.Linear(child.in_features, 7).to(next(model.parameters()).dtype)
        setattr(parent, name, head if dice.random() < 0.7 else nn.Identity())
    return model


def _sequentials(model: Model) -> list[nn.Sequential]:
    return [m for m in model.modules() if isinstance(m, nn.Sequential)]


def append(model: Model, dice: Random) -> Model:
    if found := _sequentials(model):
        chosen = dice.choice(found)
        linears = [m for m in chosen if isinstance(m, nn.Linear)]
        chosen.append(activation(dice))
        if linears and dice.random() < 0.6:
            width = linears[-1].out_features
            chosen.append(nn.Linear(width, width).to(linears[-1].weight.dtype))
    return model


def insert(model: Model, dice: Random) -> Model:
    if found := _sequentials(model):
        chosen = dice.choice(found)
        chosen.insert(dice.randint(0, len(chosen)), dice.choice([nn.Identity(), nn.Dropout(0.0), activation(dice)]))
    return model


def delete(model: Model, dice: Random) -> Model:
    if found := [m for m in _sequentials(model) if len(m) > 1]:
        chosen = dice.choice(found)
        kept = [k for k in range(len(chosen)) if not isinstance(chosen[k], nn.Linear)]
        # Mostly something that leaves the shapes as they are.
        del chosen[dice.choice(kept) if kept and dice.random() < 0.8 else -1]
    return model


class LowRank:
    """x ↦ forward(x) + x A B, as adapters patch it into a layer."""

    def __init__(self, forward: Callable[[Tensor], Tensor], a: Tensor, b: Tensor) -> None:
        self.original, self.a, self.b = forward, a, b

    def __call__(self, x: Tensor) -> Tensor:
        return self.original(x) + x @ self.a @ self.b


def patch_forward(model: Model, dice: Random) -> Model:
    if found := _linears(model):
        chosen = dice.choice(found)
        a, b = torch.randn(chosen.in_features, 2) / 4, torch.randn(2, chosen.out_features) / 4
        chosen.forward = LowRank(chosen.forward, a.to(chosen.weight.dtype), b.to(chosen.weight.dtype))
    return model


def freeze(model: Model, dice: Random) -> Model:
    for p in dice.sample(list(model.parameters()), min(2, len(list(model.parameters())))):
        p.requires_grad_(not p.requires_grad)
    return model


def freeze_all(model: Model, dice: Random) -> Model:
    return model.requires_grad_(dice.random() < 0.5)


def edit_in_place(model: Model, dice: Random) -> Model:
    if found := _linears(model):
        chosen = dice.choice(found)
        with torch.no_grad():
            if dice.random() < 0.5:
                chosen.weight.copy_(_like(model, chosen.weight))
            else:
                chosen.weight[0] = 0.3
    return model


def edit_data(model: Model, dice: Random) -> Model:
    """Changes that do not raise the version counter."""
    if found := _linears(model):
        chosen = dice.choice(found)
        chosen.weight.data.mul_(dice.choice([-1.0, 0.7]))
        if chosen.bias is not None:
            chosen.bias.data.add_(0.1)
    return model


def assign_data(model: Model, dice: Random) -> Model:
    """Other memory under the same parameter, also in layouts a kernel might not expect."""
    if found := _linears(model):
        weight = dice.choice(found).weight
        fresh, (rows, columns) = _like(model, weight), weight.shape
        form = dice.randrange(5)
        if form == 4 and rows == columns:
            fresh = weight.data.t()  # the same memory, read the other way
        elif form == 1:
            fresh = fresh.t().contiguous().t()
        elif form == 2:
            big = torch.zeros(rows + 1, columns + 3, dtype=fresh.dtype)
            big[1:, 3:] = fresh
            fresh = big[1:, 3:]
        elif form == 3:
            fresh = fresh[:1].expand(rows, columns)
        weight.data = fresh
    return model


def new_parameter(model: Model, dice: Random) -> Model:
    if found := _linears(model):
        chosen = dice.choice(found)
        chosen.weight = nn.Parameter(_like(model, chosen.weight), requires_grad=dice.random() < 0.8)
    return model


def change_bias(model: Model, dice: Random) -> Model:
    if found := [s[2] for s in _slots(model, nn.Linear, _PLAIN_PARENTS) if "weight" in s[2]._parameters]:
        chosen = dice.choice(found)
        if chosen.bias is None:
            chosen.bias = nn.Parameter(torch.randn(chosen.out_features).to(chosen.weight.dtype))
        else:
            chosen.bias = None
    return model


def tie(model: Model, dice: Random) -> Model:
    found = _linears(model)
    pairs = [(a, b) for a in found for b in found if a is not b and a.weight.shape == b.weight.shape]
    if pairs:
        a, b = dice.choice(pairs)
        a.weight = b.weight
    return model


def computed_weight(model: Model, dice: Random) -> Model:
    """The weight becomes a tensor that is no parameter, computed from one that has another name."""
    if found := [m for m in _linears(model) if m.weight.is_leaf]:
        chosen = dice.choice(found)
        weight = chosen.weight
        del chosen.weight
        chosen.register_parameter("source", weight)
        chosen.weight = weight.detach() * 0.8
    return model


def load(model: Model, dice: Random) -> Model:
    state = {k: _like(model, v) if v.is_floating_point() and v.dim() == 2 else v for k, v in model.state_dict().items()}
    model.load_state_dict(copy.deepcopy(state), assign=dice.random() < 0.5)
    return model


def deepcopied(model: Model, dice: Random) -> Model:
    return copy.deepcopy(model)


def reloaded(model: Model, dice: Random) -> Model:
    if any("forward" in m.__dict__ and isinstance(m.__dict__["forward"], LowRank) for m in model.modules()):
        return model  # a bound method of a module that is being loaded finds the patch, not the original
    if dice.random() < 0.5:
        return pickle.loads(pickle.dumps(model))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def cast(model: Model, dice: Random) -> Model:
    return model.to(dice.choice([torch.float64, torch.float32, torch.float32, torch.bfloat16]))


def to_and_fro(model: Model, dice: Random) -> Model:
    return model.double().float()


def train(model: Model, dice: Random) -> Model:
    return model.train(dice.random() < 0.5)


def train_one(model: Model, dice: Random) -> Model:
    dice.choice(list(model.modules())).train(dice.random() < 0.5)
    return model


def change_threshold(model: Model, dice: Random) -> Model:
    if found := [m for m in model.modules() if hasattr(m, "threshold")]:
        chosen = dice.choice(found)
        chosen.threshold = dice.choice([0.0, 0.1, 0.3])
        if hasattr(chosen, "clip"):
            chosen.clip = dice.choice([0.2, 1.0, float("inf")])
    return model


def change_inplace(model: Model, dice: Random) -> Model:
    if found := [m for m in model.modules() if isinstance(m, (nn.ReLU, nn.Dropout))]:
        chosen = dice.choice(found)
        chosen.inplace = not chosen.inplace
        if isinstance(chosen, nn.Dropout):
            chosen.p = dice.choice([0.0, 0.4])
    return model


def halve_output(module: Model, args: tuple, out: object) -> object:
    return out * 0.5 if isinstance(out, Tensor) else None


def shift_input(module: Model, args: tuple) -> object:
    return (args[0] + 0.1, *args[1:]) if args and isinstance(args[0], Tensor) else None


def double_gradient(module: Model, grad_input: tuple, grad_output: tuple) -> object:
    return tuple(None if g is None else 2.0 * g for g in grad_input)


def scale_outer_gradient(module: Model, grad_output: tuple) -> object:
    return tuple(None if g is None else 3.0 * g for g in grad_output)


def hook(model: Model, dice: Random) -> Model:
    """A hook that stays and that changes what it sees."""
    module = dice.choice(list(model.modules()))
    kind = dice.randrange(4)
    if kind == 0:
        module.register_forward_hook(halve_output)
    elif kind == 1:
        module.register_forward_pre_hook(shift_input)
    elif kind == 2:
        module.register_full_backward_hook(double_gradient)
    else:
        module.register_full_backward_pre_hook(scale_outer_gradient)
    return model


def unhook(model: Model, dice: Random) -> Model:
    for module in model.modules():
        for kept in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
            if all(h in (halve_output, shift_input, double_gradient) for h in kept.values()):
                kept.clear()
    return model


def halve_gradient(grad: Tensor) -> Tensor:
    return 0.5 * grad


def hook_parameter(model: Model, dice: Random) -> Model:
    if found := [p for p in model.parameters() if p.requires_grad]:
        dice.choice(found).register_hook(halve_gradient)
    return model


def zero_grad(model: Model, dice: Random) -> Model:
    model.zero_grad(set_to_none=dice.random() < 0.7)
    return model


def scale_gradients(model: Model, dice: Random) -> Model:
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    return model


# These give another object; an optimizer that the model was accelerated with stays with the first.
COPIES: dict[str, Edit] = {"deepcopy": deepcopied, "pickle": reloaded}
EDITS: dict[str, Edit] = {
    **COPIES,
    "replace a Linear": replace_linear,
    "replace an activation": replace_activation,
    "swap the head": swap_head,
    "append": append,
    "insert": insert,
    "del": delete,
    "patch forward": patch_forward,
    "freeze": freeze,
    "requires_grad_": freeze_all,
    "edit a weight in place": edit_in_place,
    "edit weight.data": edit_data,
    "weight.data = …": assign_data,
    "weight = Parameter": new_parameter,
    "bias on or off": change_bias,
    "tie two weights": tie,
    "weight is computed": computed_weight,
    "load_state_dict": load,
    "cast": cast,
    "double and back": to_and_fro,
    "train or eval": train,
    "train or eval of one": train_one,
    "threshold or clip": change_threshold,
    "inplace or p": change_inplace,
    "hook": hook,
    "unhook": unhook,
    "hook on a parameter": hook_parameter,
    "zero_grad": zero_grad,
    "clip gradients": scale_gradients,
}
