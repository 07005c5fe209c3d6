"""Is this model a plain chain: layer, activation, layer, activation? And if not, what was seen, in words.

An add of two streams, a normalisation, attention or recurrence changes the maps by which variance and gradient go from
layer to layer, so nothing said of the chain holds there.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from hush.nn.flow import INPUT, RECURRENT, Flow, Operation
from hush.nn.recognise import is_activation

__all__ = [
    "NORMALISATION_MODULES",
    "activation_functions",
    "listed",
    "module_obstacles",
    "obstacles",
    "own_forwards",
    "place_name",
    "source_name",
]

NORMALISATION_MODULES = (
    nn.modules.batchnorm._NormBase,  # BatchNorm, InstanceNorm and SyncBatchNorm
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.LocalResponseNorm,
    nn.CrossMapLRN2d,
)
_ATTENTION_MODULES = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_TORCH_FORWARDS: frozenset[Callable[..., Any]] = frozenset(
    kind.forward
    for kind in vars(nn).values()
    if isinstance(kind, type) and issubclass(kind, nn.Module) and kind.forward is not nn.Module.forward
)


def obstacles(model: nn.Module, flow: Flow) -> tuple[str, ...]:
    """What makes the model another thing than a chain, a phrase for each kind; empty for a chain.

    A fork into several heads is no obstacle, nor is a layer used twice: along each path the variance goes as in a
    chain. `Flow.forks` and `Flow.used_again` have them.
    """
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    lost = [call.layer for call in flow.calls if not call.reads]
    phrases = [
        _joins([operation for operation in flow.operations if operation.kind == "join"], model),
        *_modules_of("normalisation", flow, kinds, model),
        *_modules_of("attention", flow, kinds, model),
        *_modules_of("recurrence", flow, kinds, model),
        f"what {listed(lost)} reads could not be followed back to a layer or to the input" if lost else "",
    ]
    return tuple(phrase for phrase in phrases if phrase)


def module_obstacles(model: nn.Module) -> tuple[str, ...]:
    """The same as far as it can be seen without running the model: its normalisations, attention, recurrence."""
    found: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, (*NORMALISATION_MODULES, *_ATTENTION_MODULES, *RECURRENT)):
            found.setdefault(type(module).__name__, []).append(name)
    return tuple(f"{kind} at {listed(names)}" for kind, names in found.items())


def activation_functions(model: nn.Module, flow: Flow) -> dict[str, str]:
    """The activations that were applied as functions, which no hook can read, and where each was called."""
    found: dict[str, list[str]] = {}
    for operation in flow.operations:
        if operation.kind == "activation":
            found.setdefault(operation.function, []).append(place_name(model, operation.within))
    return {function: listed(places, quoted=False) for function, places in found.items()}


def own_forwards(model: nn.Module) -> tuple[str, ...]:
    """The classes in the model whose `forward` is neither torch's nor hush's: what they do shows only when they run."""
    # What computes a parametrised weight is no part of the data flow.
    lists = (module for module in model.modules() if isinstance(module, ParametrizationList))
    aside = {inner for module in lists for inner in module.modules()}
    odd = (type(module).__name__ for module in model.modules() if module not in aside and not _is_familiar(module))
    return tuple(dict.fromkeys(odd))


def listed(names: Iterable[str], most: int = 3, *, quoted: bool = True) -> str:
    """'a', 'b', 'c' and 4 more."""
    names = list(dict.fromkeys(names))
    text = ", ".join(repr(name) if quoted else name for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def source_name(source: str) -> str:
    return "the input" if source == INPUT else source


def place_name(model: nn.Module, within: str) -> str:
    """Where in the model a function was called."""
    return repr(within) if within else f"{type(model).__name__}.forward"


def _is_familiar(module: nn.Module) -> bool:
    if is_activation(module) or isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        return True
    forward = vars(module).get("forward", type(module).forward)
    # An accelerated module has a forward of hush's, which gives what the plain one gives.
    package, _, _ = str(getattr(forward, "__module__", "")).partition(".")
    return forward in _TORCH_FORWARDS or package == "hush"


def _joins(joins: list[Operation], model: nn.Module) -> str:
    if not joins:
        return ""
    first = joins[0]
    sources = [source_name(source) for source in sorted(first.sources)]
    what = " with ".join(sources[:2])
    if len(sources) == 1:
        what += " with something else made of it, as a gate or a normalisation by hand does"
    elif len(sources) > 2:
        what += f" and {len(sources) - 2} more"
    text = f"{_article(first.function)} in {place_name(model, first.within)} joins {what}"
    return text if len(joins) == 1 else f"{text} ({len(joins)} such joins in all)"


def _modules_of(kind: str, flow: Flow, kinds: dict[str, str], model: nn.Module) -> Iterator[str]:
    """BatchNorm2d at 'norm1', 'norm2' and 3 more; a function by the module in whose forward it was called."""
    at: dict[str, list[str]] = {}
    for operation in flow.operations:
        if operation.kind == kind:
            module = model.get_submodule(operation.within)
            own = isinstance(module, (*NORMALISATION_MODULES, *_ATTENTION_MODULES, *RECURRENT))
            what = kinds[operation.within] if own else f"the function {operation.function}"
            at.setdefault(what, []).append(operation.within)
    for what, names in at.items():
        places = listed((place_name(model, name) for name in names), quoted=False)
        yield f"{what} {'in' if what.startswith('the ') else 'at'} {places}"


def _article(function: str) -> str:
    return f"{'an' if function[0] in 'aeiou' else 'a'} {function}"
