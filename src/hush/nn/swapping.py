"""Put a design's activation in the place of a model's own."""

from typing import Any

from torch import nn

from hush.nn.activation_choice import Choice, Names, Types, choose, nothing_found
from hush.nn.activation_exchange import Exchange, note_on
from hush.nn.activation_uses import OVERWROTE, Uses, function_uses, inplace_matters, watch_uses
from hush.nn.activations import from_design
from hush.nn.pretrained_config import update_configs
from hush.nn.structure import listed
from hush.nn.swap_report import Swapped, SwapReport
from hush.theory import Design, entry_of

__all__ = ["swap_activations"]


def swap_activations(
    model: nn.Module,
    design: Design,
    *,
    types: Types = None,
    names: Names = None,
    skip: Names = (),
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
    chosen, left = choose(model, Choice(types, names, skip))
    if not chosen:
        raise ValueError(f"nothing to swap in {nothing_found(model, left, example)}")
    units = _units_dim(model, design, dim)
    made = from_design(design, dim=units)  # before anything changes: a design without a module leaves the model whole
    notes = [note_on(place, chosen) for place in chosen]
    held = [place.held for place in chosen if isinstance(place.held, nn.Module)]
    overwrote = example is not None and inplace_matters(model, held, example)
    fresh = [from_design(design, in_state_dict=True, dim=units) for _ in chosen]
    Exchange(model, chosen, fresh).put()
    uses = None if example is None else watch_uses(model, example)
    swapped = tuple(
        Swapped(place.name, place.was, repr(module), *_called(module, note, uses))
        for place, module, note in zip(chosen, fresh, notes, strict=True)
    )
    functions = None if uses is None else function_uses(model, uses)
    said = update_configs(model, design.activation, swapped, left)
    return SwapReport(repr(made), swapped, tuple(left), functions, (OVERWROTE, *said) if overwrote else said)


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


def _called(module: nn.Module, note: str, uses: Uses | None) -> tuple[int | None, str]:
    if uses is None:
        return None, note
    calls = uses.calls[module]
    if calls == 0:
        said = "the example's run does not call it"
    else:
        said = f"called {calls} times, with one threshold for all" if calls > 1 else ""
    return calls, "; ".join(part for part in (note, said) if part)
