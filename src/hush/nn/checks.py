"""What `hush.init_` and `hush.diagnose` ask of a model, an input and a design; each refusal is one sentence."""

from typing import Any, overload

import torch
from torch import Tensor, nn

from hush.nn.activations import from_design
from hush.nn.flow import weight_layers
from hush.nn.quiet_run import Arguments
from hush.nn.recognise import activations_of, phi_of
from hush.nn.relative import Relative
from hush.nn.structure import NORMALISATION_MODULES
from hush.theory import Design

__all__ = ["Inputs", "check_activations", "check_inputs", "check_kept", "check_model", "check_units"]

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Any]


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


@overload
def check_inputs(model: nn.Module, inputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]: ...
@overload
def check_inputs(model: nn.Module, inputs: Inputs) -> Arguments: ...
def check_inputs(model: nn.Module, inputs: Inputs) -> Arguments:
    """The arguments for the model, in order or by keyword: not empty, finite, not constant, of its dtype and device.

    Among keyword arguments there may be other things than tensors, which are passed on as they are; masks and the like,
    tensors of numbers that are not floating-point, may be constant.
    """
    arguments: Arguments = inputs if isinstance(inputs, (tuple, dict)) else (inputs,)
    values = list(arguments.values()) if isinstance(arguments, dict) else list(arguments)
    tensors = [x for x in values if isinstance(x, Tensor)]
    if not tensors or (isinstance(arguments, tuple) and len(tensors) < len(values)):
        kinds = ", ".join(type(x).__name__ for x in values)
        raise ValueError(
            f"inputs must be a tensor or a tuple of tensors, batch first, or a dictionary of keyword arguments, "
            f"got {kinds or 'nothing'}."
        )
    own = next(model.parameters())
    for x in tensors:
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
        if phi_of(module) != phi:
            raise ValueError(
                f"the model uses {module} at {name!r}, but the design is for {wanted}; replace it by design.module(), "
                f"or pass allow=({type(module).__name__},) if it stands outside the hidden layers."
            )
        count += 1
    check_units(model)
    return count


def check_units(model: nn.Module) -> None:
    """Refuse a relative threshold that takes its size over something else than the channels of the convolution in front
    of it; in a Sequential alone, where it can be seen what is in front."""
    for name, parent in model.named_modules():
        before: nn.Module | None = None
        for child_name, child in parent.named_children() if isinstance(parent, nn.Sequential) else ():
            if isinstance(child, Relative) and isinstance(before, nn.modules.conv._ConvNd):
                dims = (child.dim,) if isinstance(child.dim, int) else child.dim
                if not {1, -1 - len(before.kernel_size)} & {*dims}:
                    path = f"{name}.{child_name}" if name else child_name
                    raise ValueError(
                        f"{child} at {path!r} takes the size of a layer over dim = {child.dim}, and the units of the "
                        f"{type(before).__name__} in front of it are dim = 1: its channels."
                    )
            if not isinstance(child, (nn.Identity, nn.Dropout, nn.Dropout2d, *NORMALISATION_MODULES)):
                before = child


def check_kept(model: nn.Module, keep: tuple[str, ...]) -> None:
    """Every name is that of a parameter, or of a module that has some."""
    if isinstance(keep, str):
        raise ValueError(f"keep must be a tuple of names, such as ({keep!r},), got {keep!r}.")
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    for each in keep:
        if not any(name == each or name.startswith(f"{each}.") for name in names):
            raise ValueError(f"keep names {each!r}, and the model has no layer or parameter of that name.")
