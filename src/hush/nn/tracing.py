"""Run a model once on an example and record which layer reads which.

Every tensor of that run carries its streams: the weight layers, or the model's input, that it comes from with no other
weight layer in between. A layer that reads only the input is a first layer; one whose output reaches the model's
output with no layer behind it is an output layer. The order in which modules were registered plays no part.

Modules are followed by hooks and what happens between them by torch's own functions. So reuse, residual adds, and
weights applied by function (`nn.MultiheadAttention`) are seen, and so is what a plain chain does not have: streams
that join, normalisations, attention, recurrence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from hush.nn.flow import (
    INPUT,
    RECURRENT,
    WEIGHT_LAYERS,
    ActivationCall,
    Flow,
    LayerCall,
    Operation,
    OperationKind,
    weight_layers,
)
from hush.nn.quiet_run import quietly, tensors_in
from hush.nn.recognise import is_activation
from hush.nn.torch_functions import (
    ATTENTIONS,
    ELEMENTWISE_ACTIVATIONS,
    FACTORIES,
    NORMALISATIONS,
    PRODUCTS,
    REARRANGEMENTS,
    TABLES,
)

__all__ = ["trace_flow"]


def trace_flow(model: nn.Module, example: Any) -> Flow:
    """Run `model` on `example` (a tensor, or a tuple of arguments) and watch. Leaves the model as it was."""
    arguments = example if isinstance(example, tuple) else (example,)
    watch = _Watch(model, [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)])
    with quietly(model), torch.no_grad(), watch.hooks(), watch:
        output = model(*arguments)
    outputs = watch.trail_of(tensors_in(output)).sources - {INPUT}
    return Flow(tuple(watch.calls), tuple(watch.activations), tuple(watch.operations), outputs)


class _Stream(NamedTuple):
    """Where a tensor comes from, and whether an activation or a reduction (a mean, a pooling) came since.

    The two marks tell x from φ(x) and x from its mean, so that x + φ(x) and x/|x| count as streams that join.
    """

    source: str
    activated: bool = False
    reduced: bool = False


_Streams = frozenset[_Stream]


class _Trail(NamedTuple):
    """What a tensor carries: its streams, and the functions it went through since, but activations."""

    streams: _Streams = frozenset()
    through: frozenset[str] = frozenset()

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(stream.source for stream in self.streams)


class _Watch(TorchFunctionMode):
    """Passes the trails on, from the arguments of each torch function and of each module to what it returns."""

    def __init__(self, model: nn.Module, inputs: list[Tensor]) -> None:
        super().__init__()
        self.names = {module: name for name, module in model.named_modules()}
        self.calls: list[LayerCall] = []
        self.activations: list[ActivationCall] = []
        self.operations: list[Operation] = []
        self._running: list[nn.Module] = []
        make: Any = WeakTensorKeyDictionary  # which torch has not typed
        self._owners = make()  # weights, and the names of their layers
        self._trails = make()
        for name, module in weight_layers(model).items():
            if isinstance(module.weight, nn.Parameter):
                self._owners.setdefault(module.weight, name)
        for tensor in inputs:
            self._trails[tensor] = _Trail(frozenset({_Stream(INPUT)}))

    def trail_of(self, values: Any) -> _Trail:
        """The trails of all tensors in `values` together."""
        return _together([trail for leaf in _tensors(values) if (trail := self._trails.get(leaf))])

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Hooks on every module, which also make an accelerated one run its plain layers."""
        handles = []
        for module in self.names:
            handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            handles.append(module.register_forward_hook(self._after, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._running.append(module)
        trail = self.trail_of((args, kwargs))
        if isinstance(module, WEIGHT_LAYERS):
            self.calls.append(LayerCall(self._layer(module), trail.sources, trail.through))
        elif is_activation(module):
            self.activations.append(ActivationCall(trail.sources, trail.through))
        elif isinstance(module, RECURRENT):
            self._note("recurrence", type(module).__name__, trail.sources)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self._running.pop()
        trail = self.trail_of((args, kwargs))
        if isinstance(module, WEIGHT_LAYERS):
            self._set(_tensors(output), _Trail(frozenset({_Stream(self._layer(module))})))
        elif is_activation(module):
            self._set(_tensors(output), trail._replace(streams=_activated(trail.streams)))
        else:
            # What no torch function was seen to make (a custom kernel) comes from what the module was given.
            lost = [leaf for leaf in _tensors(output) if leaf not in self._trails]
            self._set(lost, trail._replace(through=trail.through | {type(module).__name__}))

    def _layer(self, module: nn.Module) -> str:
        """Its name; a weight that two modules share goes under the name of the first."""
        return str(self._owners.get(module.weight, self.names[module]))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        # What a layer or an activation does inside is its own affair: the hooks say what comes out.
        inside = self._running[-1] if self._running else None
        if func in FACTORIES or isinstance(inside, WEIGHT_LAYERS) or (inside is not None and is_activation(inside)):
            return result
        tensors = _tensors((args, kwargs))
        # An assignment to a part of a tensor returns nothing, and changes its first argument.
        outputs = _tensors(args[0] if func is Tensor.__setitem__ else result)
        # A weight that is tied to an embedding and looked up there gives rows of a table: no layer is at work.
        layers = [] if func in TABLES else [self._owners[tensor] for tensor in tensors if tensor in self._owners]
        if layers and len(tensors) == len(layers):
            # A weight alone, transposed or sliced: still that weight.
            for output in outputs:
                self._owners.setdefault(output, layers[0])
            return result
        given = [trail for tensor in tensors if (trail := self._trails.get(tensor))]
        trail = _together(given)
        if given and outputs:
            self._notice(func, given, trail.sources)
        if layers:
            self.calls += [LayerCall(layer, trail.sources, trail.through) for layer in layers]
            trail = _Trail(frozenset(_Stream(layer) for layer in layers))
        elif func in ELEMENTWISE_ACTIVATIONS:
            trail = trail._replace(streams=_activated(trail.streams))
        elif func not in REARRANGEMENTS:
            trail = trail._replace(through=trail.through | {_name(func)})
        largest = max((tensor.numel() for tensor in tensors), default=0)
        for output in outputs:
            if output not in self._owners:
                reduced = not layers and output.numel() < largest
                self._set([output], trail._replace(streams=_reduced(trail.streams)) if reduced else trail)
        return result

    def _notice(self, func: Any, given: list[_Trail], sources: frozenset[str]) -> None:
        name = _name(func)
        if func in ATTENTIONS:
            self._note("attention", name, sources)
        elif not sources - {INPUT}:
            # What is done to the input before the first layer is preparation of the data, which the theory allows.
            return
        elif func in NORMALISATIONS:
            self._note("normalisation", name, sources)
        elif func in ELEMENTWISE_ACTIVATIONS:
            self._note("activation", name, sources)
        elif len({trail.streams for trail in given}) > 1 or (func in PRODUCTS and len(given) > 1):
            self._note("join", name, sources)

    def _note(self, kind: OperationKind, function: str, sources: frozenset[str]) -> None:
        within = self.names.get(self._running[-1], "") if self._running else ""
        self.operations.append(Operation(kind, function, within, sources))

    def _set(self, leaves: list[Tensor], trail: _Trail) -> None:
        for leaf in leaves:
            if trail.streams:
                self._trails[leaf] = trail


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _together(trails: list[_Trail]) -> _Trail:
    streams = frozenset[_Stream]().union(*(trail.streams for trail in trails))
    return _Trail(streams, frozenset[str]().union(*(trail.through for trail in trails)))


def _activated(streams: _Streams) -> _Streams:
    return frozenset(stream._replace(activated=True) for stream in streams)


def _reduced(streams: _Streams) -> _Streams:
    return frozenset(stream._replace(reduced=True) for stream in streams)


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func)).strip("_")
