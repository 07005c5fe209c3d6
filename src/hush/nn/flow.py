"""Which layer reads which: the order of data flow, found by running the model once on an example.

Every tensor of that run carries the names of the weight layers it comes from directly, with none in between. A layer
that reads only the input is a first layer, one whose output reaches the model's output unhindered is an output layer;
the order in which modules were registered plays no part. Reuse, residual adds and weights applied by function
(`nn.MultiheadAttention`) are seen, because it is torch's functions that are watched, not modules.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["WEIGHT_LAYERS", "Flow", "quietly", "trace_flow", "weight_layers"]

WEIGHT_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Stands for the model's input among the names; no module can be called so.
_INPUT = "<input>"


@dataclass(frozen=True)
class Flow:
    """Of each weight layer that ran, in order: whose outputs it reads. And whose outputs the model gives out."""

    reads: dict[str, frozenset[str]]
    outputs: frozenset[str]

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(self.reads)

    @property
    def first(self) -> frozenset[str]:
        """The layers that read the input, and no other layer."""
        return frozenset(name for name, sources in self.reads.items() if sources <= {_INPUT})

    @property
    def is_chain(self) -> bool:
        """Each layer reads the one before it and no other."""
        expected = [frozenset({name}) for name in (_INPUT, *self.order)][: len(self.reads)]
        return list(self.reads.values()) == expected


def weight_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every Linear and convolution by name, in order of registration; a shared module under its first name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, WEIGHT_LAYERS)}


def trace_flow(model: nn.Module, example: Any) -> Flow:
    """Run `model` on `example` (a tensor, or a tuple of arguments) and watch. Leaves the model as it was."""
    owners = WeakTensorKeyDictionary()
    for name, module in weight_layers(model).items():
        if isinstance(module.weight, nn.Parameter):
            owners.setdefault(module.weight, name)
    arguments = example if isinstance(example, tuple) else (example,)
    watch = _Watch(owners, [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)])
    with quietly(model), torch.no_grad(), watch:
        output = model(*arguments)
    outputs = frozenset[str]().union(*(watch.sources(leaf) for leaf in tree_leaves(output)))
    return Flow(watch.reads, outputs - {_INPUT})


@contextmanager
def quietly(model: nn.Module) -> Iterator[None]:
    """In eval mode, and afterwards each module in the mode it was in and the random state untouched."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class _Watch(TorchFunctionMode):
    """Passes the names on from the arguments of each torch function to what it returns."""

    def __init__(self, owners: WeakTensorKeyDictionary, inputs: list[Tensor]) -> None:
        super().__init__()
        self.owners = owners
        self.reads: dict[str, frozenset[str]] = {}
        self._sources = WeakTensorKeyDictionary()
        for tensor in inputs:
            self._sources[tensor] = frozenset({_INPUT})

    def sources(self, value: Any) -> frozenset[str]:
        return self._sources.get(value, frozenset()) if isinstance(value, Tensor) else frozenset()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        result = func(*args, **kwargs)
        layers = [self.owners[tensor] for tensor in tensors if tensor in self.owners]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf not in self.owners]
        found = frozenset[str]().union(*(self.sources(tensor) for tensor in tensors))
        if layers and len(tensors) == len(layers):
            # A weight alone, transposed or sliced: still that weight.
            for output in outputs:
                self.owners[output] = layers[0]
            return result
        for layer in layers:
            self.reads[layer] = self.reads.get(layer, frozenset()) | found
        for output in outputs:
            self._sources[output] = frozenset(layers) or found
        return result
