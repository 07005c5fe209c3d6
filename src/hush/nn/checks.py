"""What `hush.init_` and `hush.diagnose` ask of a model, an input and a design; each refusal is one sentence."""

import torch
from torch import Tensor, nn

from hush.nn.activations import from_design
from hush.nn.flow import weight_layers
from hush.nn.recognise import activations_of, phi_of
from hush.theory import Design, PiecewiseLinear

__all__ = ["check_activations", "check_inputs", "check_model"]


def check_model(model: nn.Module) -> dict[str, nn.Module]:
    """The weight layers of a model that is ready: some exist, all have shape and values."""
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ValueError(f"{name} is lazy and has no shape yet; run the model once on an example batch first.")
        if parameter.is_meta:
            raise ValueError(f"{name} is on the meta device and holds no values; call model.to_empty(device=…) first.")
    layers = weight_layers(model)
    if not layers:
        raise ValueError(f"{type(model).__name__} has no Linear or Conv layer, so there is nothing to do here.")
    return layers


def check_inputs(model: nn.Module, inputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The arguments for the model: not empty, finite, not constant, of the model's dtype and device."""
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    if not arguments or not all(isinstance(x, Tensor) for x in arguments):
        kinds = ", ".join(type(x).__name__ for x in arguments)
        raise ValueError(f"inputs must be a tensor or a tuple of tensors, batch first, got {kinds or 'nothing'}.")
    own = next(model.parameters())
    for x in arguments:
        if x.dim() == 0 or x.numel() == 0:
            raise ValueError(f"the batch is empty: its shape is {tuple(x.shape)}.")
        if x.device != own.device:
            raise ValueError(f"the inputs are on {x.device} and the model is on {own.device}; move one to the other.")
        if not x.is_floating_point():
            if not any(isinstance(module, nn.Embedding) for module in model.modules()):
                raise ValueError(f"the inputs are {x.dtype} and the model computes in {own.dtype}; convert the inputs.")
            continue
        if x.dtype != own.dtype:
            raise ValueError(f"the inputs are {x.dtype} and the model computes in {own.dtype}; convert the inputs.")
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"the inputs hold {int((~torch.isfinite(x)).sum())} values that are NaN or infinite.")
        if x.numel() > 1 and bool((x == x.flatten()[0]).all()):
            raise ValueError(f"the inputs are constant: every value is {float(x.flatten()[0]):g}, their variance is 0.")
    return arguments


def check_activations(model: nn.Module, design: Design, allow: tuple[type[nn.Module], ...] = ()) -> int:
    """How many of the design's own activations the model has; any other, unless allowed, is refused.

    Modules only: what a forward method calls by function cannot be seen from outside.
    """
    wanted, phi, count = from_design(design), design.phi(), 0
    for name, module in activations_of(model):
        if isinstance(module, allow):
            continue
        own = phi_of(module)
        # Of what bends smoothly (GELU, Tanh) the design knows nothing; with straight pieces it can say what differs.
        if own is None or not isinstance(own, PiecewiseLinear):
            raise ValueError(
                f"{name!r} is {module}, which the design does not know; replace it by design.module(), {wanted}, or "
                f"pass allow=(nn.{type(module).__name__},) where it stands outside the hidden layers."
            )
        if own != phi:
            raise ValueError(f"the model uses {module} at {name!r}, but the design is for {wanted}.")
        count += 1
    return count
