"""Which activation a torch module is: the way from `nn.Module` to the registry of `hush.theory`.

A module is recognised by its exact type. A subclass may compute anything in its own `forward`, so it is recognised only
when it has been registered itself.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hush.theory import Activation, ActivationEntry, Kernel, entries
from hush.theory.activations.registry import resolve, version

__all__ = ["Recognised", "activations_of", "is_activation", "phi_of", "phi_of_function", "recognise"]

# What torch files under activations and is none in the sense of φ: they mix units, or turn outputs into probabilities.
_NOT_ELEMENTWISE = (
    nn.GLU,
    nn.LogSoftmax,
    nn.MultiheadAttention,
    nn.Softmax,
    nn.Softmax2d,
    nn.Softmin,
)
_TORCH = tuple(
    kind
    for kind in (getattr(torch.nn.modules.activation, name) for name in torch.nn.modules.activation.__all__)
    if kind not in _NOT_ELEMENTWISE
)

# The Python modules that hold activations without an entry in the registry, and nothing else: those of other libraries,
# none of which is imported for it, and hush's thresholded forms of GELU and SiLU, for which the theory has no formulas.
_LIBRARIES = (
    "hush.nn.thresholded_forms",
    "transformers.activations",
    "timm.layers.activations",
    "timm.layers.activations_me",
)

_Read = Callable[[Any], tuple[float, ...] | None]


@dataclass(frozen=True)
class Recognised:
    """A module whose φ is known.

    Attributes:
        entry: what the registry says of it.
        parameters: by name.
        kernel: how the native engine computes it; None leaves it to torch.
        threshold, clip: what the kernel needs: τ, and m or ∞.
        inplace: whether the module overwrites its input. Modules of hush never do.
        through_scale: of a threshold relative to the layer's own size, whether the gradient goes through that.
    """

    entry: ActivationEntry
    parameters: dict[str, float]
    inplace: bool
    through_scale: bool | None = None

    @property
    def phi(self) -> Activation:
        """φ, as the theory's value object."""
        options = {} if self.through_scale is None else {"through_scale": self.through_scale}
        return self.entry.construct(*self.parameters.values(), **options)

    @property
    def kernel(self) -> Kernel | None:
        return self.entry.kernel

    @property
    def threshold(self) -> float:
        return self.parameters.get("threshold", 0.0)

    @property
    def clip(self) -> float:
        return self.parameters.get("clip", math.inf)


def recognise(module: nn.Module) -> Recognised | None:
    """What `module` computes, read off the module as it is now; None where the registry has no entry for its type."""
    for entry, read, own in _by_type().get(type(module), ()):
        values = read(module)
        if values is not None:
            # torch's modules say of themselves whether they overwrite; those of hush ignore the wish.
            inplace = not own and bool(getattr(module, "inplace", False))
            through = bool(getattr(module, "through_scale", True)) if entry.relative else None
            return Recognised(entry, dict(zip(entry.parameters, values, strict=True)), inplace, through)
    return None


def phi_of(module: nn.Module) -> Activation | None:
    """φ of an activation module; None where it is not known."""
    found = recognise(module)
    return None if found is None else found.phi


def phi_of_function(name: str, given: dict[str, Any]) -> Activation | None:
    """φ of a function of `hush.nn.functional`, by its name and arguments; None where the theory has no formulas for it,
    as for the thresholded forms of GELU and SiLU."""
    entry = next((entry for entry in entries() if entry.name == name), None)
    if entry is None:
        return None
    through = bool(given.get("through_scale", True)) if entry.relative else None
    return Recognised(entry, {each: float(given[each]) for each in entry.parameters}, False, through).phi


def is_activation(module: nn.Module) -> bool:
    """Whether `module` is an elementwise activation: one of the registry's, of torch.nn, or of a library known here."""
    return type(module) in _by_type() or isinstance(module, _TORCH) or type(module).__module__ in _LIBRARIES


def activations_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """(name, module) of every activation in `model`, in order of registration."""
    return ((name, module) for name, module in model.named_modules() if is_activation(module))


_Types = dict[type, list[tuple[ActivationEntry, _Read, bool]]]
_kept: tuple[int, _Types] = (-1, {})


def _by_type() -> _Types:
    """By exact type the entries it may belong to, in the registry's order, each with how its parameters are read, and
    whether the type is the entry's own or a twin of torch's.

    It is made anew only when the registry has changed.
    """
    global _kept
    if _kept[0] != version():
        types: _Types = {}
        now = version()
        for entry in entries():
            own = entry.module_class()
            if own is not None:
                types.setdefault(own, []).append((entry, _attributes(entry.parameters), True))
            for twin in entry.torch_twins:
                types.setdefault(resolve(twin.module), []).append((entry, twin.read, False))
        _kept = now, types
    return _kept[1]


def _attributes(names: tuple[str, ...]) -> _Read:
    """Reads the attributes of these names, as floats."""
    return lambda module: tuple(float(getattr(module, name)) for name in names)
