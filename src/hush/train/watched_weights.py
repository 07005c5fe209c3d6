"""Whose gradient is recorded beside an activation's: the weight of its layer."""

from torch import Tensor, nn

__all__ = ["weight_beside"]

# In a chain the layer that feeds the activation; in a residual network the one that reads it, of the same block.
_BESIDE = {"phi": ("linear", "down", "head"), "phi1": ("conv1",), "phi2": ("conv2",)}


def weight_beside(model: nn.Module, activation: str) -> Tensor:
    """The weight that belongs to the activation of that name, in a network that hush built."""
    path, _, own = activation.rpartition(".")
    block = model.get_submodule(path)
    chain = getattr(block, own.replace("phi", "layer"), None)
    found = [chain] if chain is not None else [getattr(block, name, None) for name in _BESIDE[own]]
    layer = next(module for module in found if isinstance(module, nn.Module))
    assert isinstance(layer.weight, Tensor)
    return layer.weight
