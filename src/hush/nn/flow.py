"""Which layer reads which in one run of a model: the record that `hush.nn.tracing` makes and others ask."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

__all__ = [
    "INPUT",
    "RECURRENT",
    "WEIGHT_LAYERS",
    "ActivationCall",
    "Flow",
    "LayerCall",
    "Operation",
    "OperationKind",
    "layer_kind",
    "weight_layers",
]

WEIGHT_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
RECURRENT = (nn.RNNBase, nn.RNNCellBase)
# Stands for the model's input among the names of layers; no module can be called so.
INPUT = "<input>"

OperationKind = Literal["join", "normalisation", "attention", "recurrence", "activation"]


@dataclass(frozen=True)
class LayerCall:
    """One call of a weight layer.

    Attributes:
        reads: the layers, or the input, that it reads; empty where their origin could not be followed.
        through: the functions that changed what it reads on the way, beside activations: max_pool2d, mul, ….
    """

    layer: str
    reads: frozenset[str]
    through: frozenset[str]


@dataclass(frozen=True)
class ActivationCall:
    """One call of an activation module; the fields are those of `LayerCall`."""

    reads: frozenset[str]
    through: frozenset[str]


@dataclass(frozen=True)
class Operation:
    """Something a plain chain of layers does not have, or an activation applied as a function.

    Attributes:
        function: the name of the torch function, or of the module's class.
        within: the name of the innermost module that was running; "" for the model itself.
        sources: the layers, or the input, whose outputs it works on.
    """

    kind: OperationKind
    function: str
    within: str
    sources: frozenset[str]


@dataclass(frozen=True)
class Flow:
    """One run of a model.

    Attributes:
        calls: of the weight layers, in order.
        activations: the calls of the activation modules, in order.
        operations: what was seen besides, in order.
        outputs: the layers whose outputs the model gives out.
    """

    calls: tuple[LayerCall, ...]
    activations: tuple[ActivationCall, ...]
    operations: tuple[Operation, ...]
    outputs: frozenset[str]

    @property
    def reads(self) -> dict[str, frozenset[str]]:
        """Of each weight layer that ran, in order of its first call, the sources of all its calls."""
        found: dict[str, frozenset[str]] = {}
        for call in self.calls:
            found[call.layer] = found.get(call.layer, frozenset()) | call.reads
        return found

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(self.reads)

    @property
    def first(self) -> frozenset[str]:
        """The layers that read the input, and no other layer."""
        return frozenset(name for name, sources in self.reads.items() if sources == {INPUT})

    @property
    def used_again(self) -> tuple[str, ...]:
        """The layers that are called more than once."""
        names = [call.layer for call in self.calls]
        return tuple(name for name in self.order if names.count(name) > 1)

    @property
    def forks(self) -> dict[str, tuple[str, ...]]:
        """The layers, or the input, whose output several layers read, and which."""
        readers: dict[str, list[str]] = {}
        for name, sources in self.reads.items():
            for source in sources:
                readers.setdefault(source, []).append(name)
        return {source: tuple(names) for source, names in readers.items() if len(names) > 1}

    @property
    def is_chain(self) -> bool:
        """Each layer is called once and reads the one before it and no other."""
        expected = [frozenset({name}) for name in (INPUT, *(call.layer for call in self.calls))]
        return not self.used_again and [call.reads for call in self.calls] == expected[: len(self.calls)]


def layer_kind(module: nn.Module) -> str:
    """Linear or Conv2d, by torch's name also where the class is derived from it."""
    return next((kind.__name__ for kind in WEIGHT_LAYERS if isinstance(module, kind)), type(module).__name__)


def weight_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every Linear and convolution by name, in order of registration; a shared module under its first name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, WEIGHT_LAYERS)}
