"""Which of a model's activations are exchanged, by class, name and part of the model, and why the others are not."""

import fnmatch
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from hush.nn.activation_places import Place, activation_places, is_hidden_kind, known_activation, mixes_units
from hush.nn.activation_uses import watch_uses
from hush.nn.structure import listed
from hush.nn.swap_report import LeftActivation

__all__ = ["Choice", "Names", "Types", "choose", "nothing_found"]

Types = type[nn.Module] | Iterable[type[nn.Module]] | None
Names = str | Iterable[str] | None


class Choice:
    """Which places are swapped, and why the others are not."""

    def __init__(self, types: Types, names: Names, skip: Names) -> None:
        self.types = None if types is None else (types,) if isinstance(types, type) else tuple(types)
        self.names, self.skip = _patterns(names), _patterns(skip) or ()
        for kind in self.types or ():
            if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
                raise ValueError(f"types must be classes of modules, such as nn.ReLU, got {kind!r}.")

    def check_patterns(self, places: Sequence[Place]) -> None:
        for option, patterns in (("names", self.names or ()), ("skip", self.skip)):
            for pattern in patterns:
                if not any(_matches(place, [pattern]) for place in places):
                    raise ValueError(
                        f"{option}={pattern!r} matches no activation of the model; "
                        f"it has {listed([place.name for place in places], 6) or 'none'}."
                    )

    def reason_to_leave(self, place: Place) -> str:
        """ "" where it is to be swapped."""
        kind = place.kind.__name__
        if _matches(place, self.skip):
            return "skip= names it"
        if self.names is not None and not _matches(place, self.names):
            return "names= does not name it"
        if self.types is not None and not issubclass(place.kind, self.types):
            return f"types= does not name {kind}"
        if mixes_units(place.kind) and self.types is None:
            return f"{kind} mixes units: no elementwise activation does its work"
        if self.names is not None:
            return ""
        if self.types is None and not is_hidden_kind(place.kind):
            return f"{kind} is mostly a gate or an output; types= or names= swaps it"
        if place.part == "head":
            return "it belongs to a head; names= swaps it"
        if place.part == "squeeze-excite":
            return "it belongs to a squeeze-excite gate, which reads averages; names= swaps it"
        return ""


def choose(model: nn.Module, choice: Choice) -> tuple[list[Place], list[LeftActivation]]:
    """The places to exchange, and those to leave.

    Raises:
        ValueError: if a pattern matches nothing, or the model is no place for anything.
    """
    places = _places(model, choice)
    choice.check_patterns(places)
    reasons = {place: choice.reason_to_leave(place) for place in places}
    chosen = [place for place in places if not reasons[place]]
    return chosen, [LeftActivation(place.name, place.was, reasons[place]) for place in places if reasons[place]]


def _places(model: nn.Module, choice: Choice) -> list[Place]:
    if choice.types is not None and isinstance(model, choice.types):
        raise ValueError(
            f"the model is itself a {type(model).__name__}: what holds it must take hush.nn.from_design's."
        )
    if known_activation(model):
        raise ValueError(f"the model is a single {type(model).__name__}: take design.module() in its place.")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ValueError("the model was compiled by TorchScript, which fixes its modules; swap before torch.jit.")
    return list(activation_places(model, choice.types or ()))


def nothing_found(model: nn.Module, left: Sequence[LeftActivation], example: Any) -> str:
    """Why a model has no place to exchange, and what to do about it; it begins with the name of its class."""
    name = type(model).__name__
    if left:
        reasons = Counter(f"{entry.was} at {entry.name!r}: {entry.reason}" for entry in left)
        seen = f"what it has was left: {listed(reasons, quoted=False)}"
    else:
        seen = "it holds no activation, neither as a module nor as a function in an attribute"
    advice = "name the class of its activations with types="
    if example is not None:
        functions = watch_uses(model, example).functions
        if functions:
            applied = listed((f"{function} in {place or name!r}" for place, function in functions), quoted=False)
            advice = f"its forward applies {applied} as a function: make that a module (self.act = nn.ReLU())"
    else:
        advice += ", or give an example, which shows the functions that a forward applies"
    return f"{name}: {seen}; {advice}."


def _patterns(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None or isinstance(given, str):
        return None if given is None else (given,)
    return tuple(given)


def _matches(place: Place, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(place.name, pattern) for pattern in patterns)
