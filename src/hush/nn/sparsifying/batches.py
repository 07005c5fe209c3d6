"""The batches on which a model is measured, as arguments for it."""

import inspect
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from hush.nn.quiet_run import Arguments

__all__ = ["inputs_in", "read_batches"]


def read_batches(model: nn.Module, batches: Any, most: int) -> tuple[list[Arguments], bool]:
    """The arguments of each of the first `most` batches, on the model's device, and whether there were more.

    A tensor is one batch, and so is a mapping. Anything else gives batches, each a tensor; a tuple of arguments; a
    mapping of keyword arguments; or a list, as of a DataLoader, whose first entry is the input. A tuple of more than
    the model's forward takes is an input and its targets as well.

    Raises:
        ValueError: if there is none, or something else.
    """
    if isinstance(batches, tuple):
        raise ValueError(
            "batches is a tuple, which may be several batches or the arguments of one; "
            "give a list: [x1, x2] of batches, or [(ids, mask)] of one batch with two arguments."
        )
    alone = isinstance(batches, (Tensor, Mapping))
    if not alone and not isinstance(batches, Iterable):
        raise ValueError(f"batches must be a tensor or give tensors, tuples or mappings, got {type(batches).__name__}.")
    taken = [batches] if alone else list(islice(batches, most + 1))
    if not taken:
        raise ValueError("batches gave nothing; thresholds are measured on a few batches of ordinary inputs.")
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return [_arguments(model, batch, device) for batch in taken[:most]], len(taken) > most


def inputs_in(arguments: Arguments) -> int:
    """How many inputs a batch has: the length of its first tensor."""
    return next((len(leaf) for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor) and leaf.dim()), 0)


def _arguments(model: nn.Module, batch: Any, device: torch.device) -> Arguments:
    arguments: Arguments
    if isinstance(batch, Mapping):
        arguments = dict(batch)
    elif isinstance(batch, list):
        arguments = tuple(batch[:1])
    elif isinstance(batch, tuple):
        arguments = batch if _takes(model, batch) else batch[:1]
    else:
        arguments = (batch,)
    if not inputs_in(arguments):
        raise ValueError(
            f"a batch must be a tensor, a tuple of arguments, a mapping of keyword arguments, or a list that begins "
            f"with the input, and hold at least one input; got {_described(batch)}."
        )
    moved: Arguments = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, arguments)
    return moved


def _takes(model: nn.Module, arguments: tuple[Any, ...]) -> bool:
    try:
        inspect.signature(model.forward).bind(*arguments)
    except TypeError:
        return False
    return True


def _described(batch: Any) -> str:
    if isinstance(batch, Tensor):
        return f"a tensor of shape {tuple(batch.shape)}"
    if isinstance(batch, (list, tuple)):
        return f"a {type(batch).__name__} of {', '.join(type(each).__name__ for each in batch) or 'nothing'}"
    return type(batch).__name__
