"""Which chains a linear start is for: convolutions or Linears and activations in turn, then a linear head."""

from dataclasses import dataclass

from torch import nn

from hush.nn.recognise import is_activation
from hush.nn.structure import listed

__all__ = ["Chain", "ChainLayer", "chain_of"]

ChainLayer = nn.Linear | nn.Conv1d | nn.Conv2d
_BEFORE_HEAD = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.Flatten)  # between convolutions and a linear head


@dataclass(frozen=True)
class Chain:
    """Hidden layers with an activation behind each, a linear head, and what comes before the first and the last."""

    before: list[nn.Module]
    layers: list[ChainLayer]
    activations: list[nn.Module]
    before_head: list[nn.Module]
    head: nn.Linear


def chain_of(model: nn.Module) -> Chain:
    """The parts of a model.

    Raises:
        ValueError: if it is no such chain.
    """
    if not isinstance(model, nn.Sequential):
        raise ValueError(
            f"a linear start is for a chain of Linears or convolutions and activations in an nn.Sequential, "
            f"got {type(model).__name__}."
        )
    before: list[nn.Module] = []
    layers: list[ChainLayer] = []
    activations: list[nn.Module] = []
    before_head: list[nn.Module] = []
    for name, module in model.named_children():
        if isinstance(module, ChainLayer) and len(layers) == len(activations):
            _check_layer(name, module, layers, before_head)
            layers.append(module)
        elif is_activation(module) and len(layers) == len(activations) + 1:
            activations.append(module)
        elif not layers:
            before.append(module)
        elif isinstance(module, _BEFORE_HEAD) and not isinstance(layers[-1], nn.Linear):
            before_head.append(module)
        elif not isinstance(module, nn.Identity | nn.Dropout):
            raise ValueError(
                f"a linear start is for Linears or convolutions and activations in turn; {name} is a "
                f"{type(module).__name__} in a place where none belongs."
            )
    head = layers.pop() if layers else None
    if not isinstance(head, nn.Linear) or not layers or len(layers) != len(activations):
        kinds = listed([type(m).__name__ for m in model], 6)
        raise ValueError(
            f"a linear start is for Linears or convolutions and activations in turn, ending in a Linear, got {kinds}."
        )
    return Chain(before, layers, activations, before_head, head)


def _check_layer(name: str, layer: ChainLayer, earlier: list[ChainLayer], before_head: list[nn.Module]) -> None:
    if layer.bias is None:
        raise ValueError(f"{name} has no bias, which a linear start needs in every layer.")
    if not isinstance(layer, nn.Linear) and layer.groups > 1:
        raise ValueError(f"{name} has {layer.groups} groups; a linear start is for convolutions of all channels.")
    if before_head and not isinstance(layer, nn.Linear):
        kind = type(before_head[-1]).__name__
        raise ValueError(f"{name} is a {type(layer).__name__} behind {kind}, behind which only the head belongs.")
    if earlier and isinstance(earlier[0], nn.Linear) and not isinstance(layer, nn.Linear):
        raise ValueError(f"{name} is a {type(layer).__name__} behind Linears; a linear start is for one kind of layer.")
    if len(earlier) > 1 and type(earlier[-1]) is not type(earlier[0]):
        raise ValueError(f"{name} follows a Linear behind convolutions, which must be the head of the network.")
