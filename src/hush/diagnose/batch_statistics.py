"""BatchNorm as in training, by the statistics of the batch that runs; the running ones are neither used nor changed."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["batch_norms", "with_batch_statistics"]

_RUNNING = ("running_mean", "running_var")


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Those that take the statistics of a batch while training."""
    return [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


@contextmanager
def with_batch_statistics(model: nn.Module) -> Iterator[None]:
    """A BatchNorm without running statistics takes those of the batch, in eval mode too; so they are put aside."""
    aside = [(module, {name: module._buffers.get(name) for name in _RUNNING}) for module in batch_norms(model)]
    try:
        for module, _ in aside:
            for name in _RUNNING:
                module._buffers[name] = None
        yield
    finally:
        for module, buffers in aside:
            module._buffers.update(buffers)
