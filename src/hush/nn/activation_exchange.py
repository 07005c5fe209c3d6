"""Put other modules in the places of a model's activations, and take them back."""

from collections.abc import Sequence

from torch import nn

from hush.nn.activation_places import Place
from hush.nn.structure import listed

__all__ = ["Exchange", "note_on"]


class Exchange:
    """New modules for the places of a model; `put` and `take_back` may be called again and again."""

    def __init__(self, model: nn.Module, places: Sequence[Place], modules: Sequence[nn.Module]) -> None:
        self._pairs = list(zip(places, modules, strict=True))
        # In eval mode torch's transformer layers run one fused kernel, which never looks at `activation` but at a flag
        # set when they were made; and an encoder hands its layers nested tensors, which only that kernel takes.
        layers = {place.parent for place in places if hasattr(place.parent, "activation_relu_or_gelu")}
        encoders = {
            module
            for module in model.modules()
            if isinstance(module, nn.TransformerEncoder) and layers.intersection(module.layers)
        }
        self._flags = [(layer, "activation_relu_or_gelu", 0) for layer in layers]
        self._flags += [(encoder, "use_nested_tensor", False) for encoder in encoders]
        self._flags_before = [getattr(owner, name) for owner, name, _ in self._flags]

    def put(self) -> None:
        for place, module in self._pairs:
            module.train(place.parent.training)
            setattr(place.parent, place.attribute, module)
        for owner, name, value in self._flags:
            setattr(owner, name, value)

    def take_back(self) -> None:
        for place, _ in self._pairs:
            # A function is no module: the registered one must go, or it would be found first.
            if not isinstance(place.held, nn.Module) and place.attribute in place.parent._modules:
                del place.parent._modules[place.attribute]
            setattr(place.parent, place.attribute, place.held)
        for (owner, name, _), before in zip(self._flags, self._flags_before, strict=True):
            setattr(owner, name, before)


def note_on(place: Place, chosen: Sequence[Place]) -> str:
    """What is worth knowing of the module that goes, or ""."""
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
