"""Where a model holds its activations: as child modules, and as functions in an attribute.

Other libraries bring classes of their own for the common activations, derived from nothing but nn.Module, so those are
known by their names. A function in an attribute (`self.act = F.relu`, as in `nn.TransformerEncoderLayer`) counts as the
module class of the same name.
"""

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

from hush.nn.recognise import is_activation
from hush.theory import entries

__all__ = ["Place", "activation_places", "is_hidden_kind", "known_activation", "mixes_units"]

# Torch's own that hidden layers use. Hardtanh is the parent of ReLU6 and left out itself: it is a clip more often.
_HIDDEN_KINDS: tuple[type[nn.Module], ...] = (
    nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardswish, nn.LeakyReLU, nn.Mish, nn.PReLU, nn.RReLU, nn.ReLU,
    nn.ReLU6, nn.SELU, nn.SiLU, nn.Softplus, nn.Softshrink, nn.Threshold,
)  # fmt: skip
# The classes of timm, Hugging Face transformers, CLIP and nanoGPT, which derive from nn.Module alone, and those of hush
# that have no entry in the registry.
_HIDDEN_NAMES = frozenset((
    "AccurateGELUActivation", "ClippedGELUActivation", "FastGELU", "FastGELUActivation", "GELU",
    "GELUActivation", "GELUTanh", "HardMish", "HardMishMe", "HardSwish", "HardSwishMe", "LaplaceActivation",
    "Mish", "MishActivation", "MishMe", "NewGELU", "NewGELUActivation", "PytorchGELUTanh", "QuickGELU",
    "QuickGELUActivation", "ReLUSquaredActivation", "SiLUActivation", "Swish", "SwishMe", "ThresholdedGELU",
    "ThresholdedSiLU", "XIELUActivation",
))  # fmt: skip
_GATE_NAMES = frozenset(("HardSigmoid", "HardSigmoidMe", "Sigmoid", "Tanh"))
# They mix units, so no activation takes their place; they are here to be named as left alone.
_MIXING_KINDS = (nn.GLU, nn.LogSoftmax, nn.Softmax, nn.Softmax2d, nn.Softmin)

_HEAD_CLASS = re.compile(r"(Head|HeadTransform|Pooler)$")
_HEAD_NAMES = frozenset({"head", "lm_head", "pooler"})
_SQUEEZE_CLASS = re.compile(r"SqueezeExc|^SE(Module|Layer|Block|Unit)?$|GatherExcite|Cbam")


def _functions() -> dict[Any, type[nn.Module]]:
    """The activation functions of torch, by the module class that does the same."""
    names = {
        "celu": nn.CELU, "elu": nn.ELU, "gelu": nn.GELU, "hardswish": nn.Hardswish, "leaky_relu": nn.LeakyReLU,
        "mish": nn.Mish, "relu": nn.ReLU, "relu6": nn.ReLU6, "rrelu": nn.RReLU, "selu": nn.SELU, "silu": nn.SiLU,
        "softplus": nn.Softplus, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "hardsigmoid": nn.Hardsigmoid,
    }  # fmt: skip
    return {
        function: kind
        for name, kind in names.items()
        for owner in (F, torch, Tensor)
        for spelling in (name, f"{name}_")
        if callable(function := getattr(owner, spelling, None))
    }


_FUNCTIONS = _functions()


@dataclass(frozen=True)
class Place:
    """One attribute of one module that holds an activation.

    Attributes:
        name: as in `named_modules`: "layers.0.act".
        kind: the class of the activation; for a function, the module class that does the same.
        held: the module, or the function, that is there now.
        part: "head" or "squeeze-excite" where it belongs to one, else "".
    """

    parent: nn.Module
    attribute: str
    name: str
    kind: type[nn.Module]
    held: Callable[..., Any]
    part: str

    @property
    def was(self) -> str:
        """What is there now, in words."""
        if isinstance(self.held, nn.Module):
            return type(self.held).__name__
        function = self.held.func if isinstance(self.held, functools.partial) else self.held
        return f"the function {getattr(function, '__name__', function)}"


def activation_places(model: nn.Module, also: tuple[type[nn.Module], ...] = ()) -> Iterator[Place]:
    """Every place of `model` that holds an activation, or one of the classes `also`, in order of registration.

    The places of a module that is itself in several places are given once.
    """
    parts = {"": ""}  # who hands over a head alone means it
    for path, parent in model.named_modules():
        if path:
            above, _, own = path.rpartition(".")
            parts[path] = parts[above] or _part_of(own, parent)
        if known_activation(parent) or isinstance(parent, also):
            continue  # the function inside an activation is how it computes, and goes with it
        prefix = f"{path}." if path else ""
        for attribute, child in parent._modules.items():
            if child is not None and (known_activation(child) or isinstance(child, also)):
                part = parts[path] or _part_of(attribute, child)
                yield Place(parent, attribute, prefix + attribute, type(child), child, part)
        for attribute, value in vars(parent).items():
            kind = _kind_of_function(value)
            if kind is not None:
                yield Place(parent, attribute, prefix + attribute, kind, value, parts[path])


def known_activation(module: nn.Module) -> bool:
    """Whether `module` is an activation, or a softmax or another that mixes units, of torch's or another library's."""
    if is_activation(module) or isinstance(module, _MIXING_KINDS):
        return True
    return type(module).__name__ in _HIDDEN_NAMES | _GATE_NAMES and not module._modules


def is_hidden_kind(kind: type[nn.Module]) -> bool:
    """Whether hidden layers use this class: the ReLUs, GELU, SiLU, …, and the activations of hush's registry."""
    own = tuple(found for entry in entries() if (found := entry.module_class()) is not None)
    return issubclass(kind, (*_HIDDEN_KINDS, *own)) or kind.__name__ in _HIDDEN_NAMES


def mixes_units(kind: type[nn.Module]) -> bool:
    """Whether each of its outputs depends on several of its inputs, as softmax's do."""
    return issubclass(kind, _MIXING_KINDS)


def _kind_of_function(value: Any) -> type[nn.Module] | None:
    function = value.func if isinstance(value, functools.partial) else value
    if isinstance(function, (nn.Module, Tensor)) or not callable(function):
        return None
    try:
        return _FUNCTIONS.get(function)
    except TypeError:  # a callable that cannot be hashed is none of torch's
        return None


def _part_of(name: str, module: nn.Module) -> str:
    kind = type(module).__name__
    if name in _HEAD_NAMES or _HEAD_CLASS.search(kind):
        return "head"
    return "squeeze-excite" if _SQUEEZE_CLASS.search(kind) else ""
