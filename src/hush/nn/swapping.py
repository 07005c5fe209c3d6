"""Put a design's activation in the place of a model's own."""

import fnmatch
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from hush.nn.activation_places import Place, activation_places, is_hidden_kind, known_activation, mixes_units
from hush.nn.activation_uses import Uses, inplace_matters, watch_uses
from hush.nn.activations import from_design
from hush.nn.pretrained_config import update_configs
from hush.nn.structure import listed
from hush.nn.swap_report import FunctionUse, LeftActivation, Swapped, SwapReport
from hush.theory import Design, entry_of

__all__ = ["swap_activations"]


def swap_activations(
    model: nn.Module,
    design: Design,
    *,
    types: type[nn.Module] | Iterable[type[nn.Module]] | None = None,
    names: str | Iterable[str] | None = None,
    skip: str | Iterable[str] = (),
    example: Any = None,
    dim: int | None = None,
) -> SwapReport:
    """Replace the activations of `model`, in place, by the design's: each place gets a module of its own.

    Their thresholds and clips are part of the model's state_dict from now on, so every layer keeps its own when the
    model is saved and loaded, by whatever means.

    Found are child modules, and torch's functions kept in an attribute (`nn.TransformerEncoderLayer`). By default the
    activations of hidden layers go (ReLU, GELU, SiLU, …, and the classes timm and Hugging Face have for them), and what
    stays is reported with a reason: sigmoid, tanh and softmax, and all that belongs to a head, a pooler or a
    squeeze-excite gate.

    Arguments:
        types: swap these classes, and those derived from them, instead of the ordinary ones. A function in an attribute
            counts as its module: F.relu as nn.ReLU. Any class may be named, one of your own too.
        names: swap only what has a name that matches one of these patterns ("blocks.*.act", as in the shell). What is
            named is swapped wherever it is, in a head too, and without `types` whatever it is.
        skip: leave what matches one of these patterns.
        example: a tensor, a tuple of arguments or a dictionary of keyword arguments, on which the model is run once
            before and after. Only so can activations be found that a forward applies as functions, modules that it
            calls several times, which then share one threshold, and in-place ones whose overwriting mattered.
        dim: for thresholds relative to the layer's own size, where an activation's units are: −1, the features of a
            Linear, or 1, the channels of a convolution. A model that has convolutions must be told, by a call for each
            part (`names`) where it has both; any other takes −1.

    Raises:
        ValueError: if there is nothing to swap, or a pattern matches nothing; the model is then as it was.
    """
    rule = _Rule(types, _patterns(names), _patterns(skip))
    places = _places(model, rule)
    rule.check_patterns(places)
    reasons = {place: rule.reason_to_leave(place) for place in places}
    chosen = [place for place in places if not reasons[place]]
    left = [LeftActivation(place.name, place.was, reasons[place]) for place in places if reasons[place]]
    if not chosen:
        raise ValueError(_nothing_found(model, left, example))
    units = _units_dim(model, design, dim)
    made = from_design(design, dim=units)  # before anything changes: a design without a module leaves the model whole
    notes = [_note(place, chosen) for place in chosen]
    held = [place.held for place in chosen if isinstance(place.held, nn.Module)]
    overwrote = example is not None and inplace_matters(model, held, example)
    fresh = [from_design(design, in_state_dict=True, dim=units) for _ in chosen]
    for place, module in zip(chosen, fresh, strict=True):
        module.train(place.parent.training)
        setattr(place.parent, place.attribute, module)
    _leave_fast_paths(model, chosen)
    uses = None if example is None else watch_uses(model, example)
    swapped = tuple(
        Swapped(place.name, place.was, repr(module), *_called(module, note, uses))
        for place, module, note in zip(chosen, fresh, notes, strict=True)
    )
    functions = None if uses is None else _function_uses(model, uses)
    said = update_configs(model, design.activation, swapped, left)
    return SwapReport(repr(made), swapped, tuple(left), functions, (_OVERWROTE, *said) if overwrote else said)


_OVERWROTE = (
    "Some of the activations worked in place, and changed a tensor that another layer, or a shortcut, read afterwards. "
    "hush's never do: there the values before the activation are read now."
)


def _units_dim(model: nn.Module, design: Design, dim: int | None) -> int:
    """Where the units are: no shape tells (batch, channels, length) from (batch, tokens, features)."""
    if not entry_of(design.activation).relative:
        if dim is not None:
            raise ValueError(
                f"dim = {dim} is for thresholds relative to a layer's own size; {design.activation} has none."
            )
        return -1
    convolutions = [name for name, module in model.named_modules() if isinstance(module, nn.modules.conv._ConvNd)]
    if dim is None and convolutions:
        raise ValueError(
            f"{design.activation} measures the size of a layer over its units, and with convolutions "
            f"({listed(convolutions)}) it cannot be seen where those are; pass dim=1 where activations read channels, "
            f"dim=-1 where they read the features of a Linear."
        )
    return -1 if dim is None else dim


class _Rule:
    """Which places are swapped, and why the others are not."""

    def __init__(
        self,
        types: type[nn.Module] | Iterable[type[nn.Module]] | None,
        names: Sequence[str] | None,
        skip: Sequence[str] | None,
    ) -> None:
        self.types = None if types is None else (types,) if isinstance(types, type) else tuple(types)
        self.names, self.skip = names, skip or ()
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


def _places(model: nn.Module, rule: _Rule) -> list[Place]:
    if rule.types is not None and isinstance(model, rule.types):
        raise ValueError(
            f"the model is itself a {type(model).__name__}: what holds it must take hush.nn.from_design's."
        )
    if known_activation(model):
        raise ValueError(f"the model is a single {type(model).__name__}: take design.module() in its place.")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ValueError("the model was compiled by TorchScript, which fixes its modules; swap before torch.jit.")
    return list(activation_places(model, rule.types or ()))


def _note(place: Place, chosen: Sequence[Place]) -> str:
    """What is worth knowing of the module that goes."""
    held, notes = place.held, []
    if isinstance(held, nn.Module):
        others = [other.name for other in chosen if other.held is held and other is not place]
        if others:
            notes.append(f"one module with {listed(others)} before, now one for each")
        if any(True for _ in held.parameters()):
            notes.append("its learned parameters are gone: make the optimizer anew")
        if held._forward_hooks or held._forward_pre_hooks:
            notes.append("its hooks are gone")
    return "; ".join(notes)


def _leave_fast_paths(model: nn.Module, chosen: Sequence[Place]) -> None:
    """Tell torch's transformer layers that they compute neither ReLU nor GELU any more.

    In eval mode they run one fused kernel, which never looks at `activation` but at a flag set when they were made; and
    an encoder hands its layers nested tensors, which only that kernel takes.
    """
    changed = {place.parent for place in chosen if hasattr(place.parent, "activation_relu_or_gelu")}
    for parent in changed:
        parent.activation_relu_or_gelu = 0  # type: ignore[assignment]
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and changed.intersection(module.layers):
            module.use_nested_tensor = False


def _called(module: nn.Module, note: str, uses: Uses | None) -> tuple[int | None, str]:
    if uses is None:
        return None, note
    calls = uses.calls[module]
    if calls == 0:
        said = "the example's run does not call it"
    else:
        said = f"called {calls} times, with one threshold for all" if calls > 1 else ""
    return calls, "; ".join(part for part in (note, said) if part)


def _function_uses(model: nn.Module, uses: Uses) -> tuple[FunctionUse, ...]:
    return tuple(
        FunctionUse(place, type(model.get_submodule(place)).__name__, function, calls)
        for (place, function), calls in uses.functions.items()
    )


def _nothing_found(model: nn.Module, left: Sequence[LeftActivation], example: Any) -> str:
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
    return f"nothing to swap in {name}: {seen}; {advice}."


def _patterns(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None or isinstance(given, str):
        return None if given is None else (given,)
    return tuple(given)


def _matches(place: Place, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(place.name, pattern) for pattern in patterns)
