"""Running a model to look at it: nothing about it changes, nothing is compiled, and its outputs are unpacked."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

__all__ = ["Arguments", "batch_statistics", "call_on", "quietly", "tensors_in"]

# What a model is called with: its arguments in order, or by keyword.
Arguments = tuple[Any, ...] | dict[str, Any]


def call_on(model: nn.Module, example: Any) -> Any:
    """model(*example) for a tuple, model(**example) for a dictionary, model(example) for anything else."""
    if isinstance(example, dict):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


@contextmanager
def quietly(model: nn.Module) -> Iterator[None]:
    """In eval mode, uncompiled; afterwards each module in the mode it was in and the random state untouched."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    # A compiled model would be compiled anew for every hook. Who has one has loaded torch._dynamo; who has none is
    # spared its import, which takes seconds.
    compiling = "torch._dynamo" in sys.modules
    try:
        with torch.random.fork_rng(devices=[]), _eager() if compiling else nullcontext():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """BatchNorm as in training, by the statistics of the batch; the running ones are afterwards what they were.

    It is for use inside `quietly`, which restores the modes. SyncBatchNorm is left in eval mode: on a CPU it cannot run
    otherwise.
    """
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, nn.SyncBatchNorm)
    ]
    kept = {module: dict(module._buffers) for module in norms}
    for module in norms:
        module.training = True
        # The run updates copies, so that the statistics themselves are never touched.
        for name, buffer in kept[module].items():
            module._buffers[name] = None if buffer is None else buffer.clone()
    try:
        yield
    finally:
        for module, buffers in kept.items():
            module._buffers.update(buffers)


def tensors_in(outputs: Any) -> list[Tensor]:
    """Every tensor in what a model gives out: in tuples, lists, dictionaries, and in the attributes of an object."""
    found: list[Tensor] = []
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif not isinstance(leaf, type) and hasattr(leaf, "__dict__"):
            found += [value for value in tree_leaves(dict(vars(leaf))) if isinstance(value, Tensor)]
    return found


def _eager() -> Any:
    stance: Any = torch.compiler.set_stance  # which torch has not typed
    return stance("force_eager")
