"""The activations of hush by name in Hugging Face configurations: `LlamaConfig(hidden_act="crelu")`.

transformers makes a module of its table `ACT2FN` for each layer, so each layer has a threshold of its own, and it goes
with the weights through `save_pretrained` and `from_pretrained`.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from hush._extras import how_to_install
from hush.nn.activations import from_design
from hush.nn.sparsifying.known_functions import FORMS
from hush.theory import Design, activation_names, entry_of

__all__ = ["register_activations"]


def register_activations(design: Design | None = None, *, name: str | None = None) -> tuple[str, ...]:
    """Let transformers know the activations of hush; the names under which it does now.

        register_activations(design)
        model = LlamaForCausalLM(LlamaConfig(hidden_act="crelu"))

    Arguments:
        design: its activation is registered, with its τ and m for every layer that is made from now on. Without one,
            all activations that hush designs are, and those that `hush.sparsify` puts in place, for loading what
            `save_pretrained` wrote: their τ and m then come from the file. Until they have come they are NaN, and so
            is all that such a layer gives out.
        name: instead of the activation's own, for several designs side by side.

    A name that was registered before is registered anew. Call this before `from_pretrained`, in each process.

    Raises:
        ValueError: if transformers is not installed or has an activation of that name itself, or if a name comes
            without a design.
    """
    if design is None:
        if name is not None:
            raise ValueError(f"name={name!r} needs a design, whose activation is to be called so.")
        designed = tuple(_register(one, _Unset(one)) for one in activation_names())
        return designed + tuple(_register(one, _UnsetForm(one)) for one in FORMS)
    return (_register(name or design.activation, _Designed(design)),)


class _Designed:
    """Makes the module of a design."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self()  # a design without a module fails here, and not when a model is built

    def __call__(self) -> nn.Module:
        return from_design(self.design, in_state_dict=True)


class _Unset:
    """Makes a module whose τ and m are yet to be loaded."""

    def __init__(self, activation: str) -> None:
        self.entry = entry_of(activation)

    def __call__(self) -> nn.Module:
        kind = self.entry.module_class()
        if kind is None:
            raise ValueError(f"{self.entry.name} has no torch module; name one in its entry of the registry.")
        module: nn.Module = kind(**dict.fromkeys(self.entry.parameters, 1.0))
        for parameter in self.entry.parameters:
            setattr(module, parameter, math.nan)
        if hasattr(module, "in_state_dict"):
            module.in_state_dict = True  # type: ignore[assignment]
        return module


class _UnsetForm:
    """Makes one of the modules of `hush.sparsify`, whose τ is yet to be loaded."""

    def __init__(self, form: str) -> None:
        self.form = form

    def __call__(self) -> nn.Module:
        module = FORMS[self.form][1]()
        module.threshold = math.nan
        return module


def _register(name: str, make: Callable[[], nn.Module]) -> str:
    try:
        from transformers import activations
    except ImportError as error:
        raise ValueError(f"Hugging Face models need transformers: {how_to_install('models')}.") from error
    tables: tuple[dict[str, Any], ...] = (activations.ACT2FN, activations.ACT2CLS)
    for table in tables:
        # ACT2FN makes a module of what it holds when it is asked, so its entries are read past that.
        present = dict.get(table, name)
        if present is not None and not isinstance(present, (_Designed, _Unset, _UnsetForm)):
            raise ValueError(f"transformers has an activation called {name!r} already; give another name=.")
    for table in tables:
        table[name] = make
    return name
