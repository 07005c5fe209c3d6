"""The share of exact zeros after the activations over a data set: the test sparsity of the paper's tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hush.nn.quiet_run import quietly
from hush.nn.recognise import activations_of

__all__ = ["Sparsity", "sparsity"]


@dataclass(frozen=True)
class Sparsity:
    """The share of zeros by layer, and their mean over the layers."""

    mean: float
    layers: dict[str, float]
    inputs: int

    def __str__(self) -> str:
        name = max(len(layer) for layer in self.layers)
        lines = [f"{layer:<{name}}  {share:.4f}" for layer, share in self.layers.items()]
        return "\n".join([*lines, f"{'mean':<{name}}  {self.mean:.4f}  over {self.inputs} inputs"])


def sparsity(model: nn.Module, loader: Iterable[Any] | Tensor) -> Sparsity:
    """mean over layers of P(x^l = 0), x^l the outputs of the activations, in eval mode.

    Batch:
        loader: a tensor, or batches of inputs, each a tensor or a sequence whose first entry is one (as of a
            DataLoader with targets); moved to the model's device.

    Raises:
        ValueError: if the model has no activation module or none of them runs, or the loader gives no batch, or
            something else than tensors.
    """
    names = {module: name for name, module in activations_of(model)}
    if not names:
        raise ValueError(f"{type(model).__name__} has no activation module to read.")
    zeros = dict.fromkeys(names.values(), 0)
    counts = dict.fromkeys(names.values(), 0)

    def count(module: nn.Module, _: Any, output: Tensor) -> None:
        name = names[module]
        zeros[name] += output.numel() - int(torch.count_nonzero(output))
        counts[name] += output.numel()

    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    inputs = 0
    handles = [module.register_forward_hook(count) for module in names]
    try:
        with quietly(model), torch.no_grad():
            for batch in [loader] if isinstance(loader, Tensor) else loader:
                x = _inputs_of(batch)
                inputs += len(x)
                model(x.to(device))
    finally:
        for handle in handles:
            handle.remove()
    if inputs == 0:
        raise ValueError("the loader gave no inputs.")
    if not any(counts.values()):
        raise ValueError(f"none of the activation modules of {type(model).__name__} ran on these inputs.")
    shares = {name: zeros[name] / counts[name] for name in zeros if counts[name]}
    return Sparsity(sum(shares.values()) / len(shares), shares, inputs)


def _inputs_of(batch: Any) -> Tensor:
    x = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    if not isinstance(x, Tensor) or x.dim() == 0:
        raise ValueError(f"a batch must be a tensor, or a sequence that begins with one, got {type(batch).__name__}.")
    return x
