"""How long a step of training takes: dense, held, and accelerated.

The residual networks are timed as they were trained, with the weights and thresholds they ended at. A designed chain of
the same size stands beside them, since chains are what the engine fuses in any version of hush.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import hush
from hush import sparse
from hush.bench.timing import Work, interleaved
from hush.data import load
from hush.nn import checkpoint
from hush.nn.holding import release
from hush.sparse.acceleration_report import make_report
from hush.train import Run, TrainConfig
from hush.train.network import build

__all__ = ["StepTime", "time_steps"]

# A held network on the engine is measured at every eighth step, as `hush train --hold` does; so eight steps are timed
# together, or the one that counts zeros would never be the median.
_STEPS = 8
_TURNS = 3
# The networks must stay where they are while we look.
_RATE = 1e-9


@dataclass(frozen=True)
class StepTime:
    """Milliseconds of a forward, backward and update, with the hold where there is one (median over turns).

    Attributes:
        accelerated: by `hush.sparse.accelerate` and `hush.sparse.step`; otherwise all is torch's own.
        fused: how many of the Linears run fused with others; each of the rest leaves out zeros by itself.
    """

    network: str
    accelerated: bool
    ms: float
    fused: int
    linears: int


@dataclass(frozen=True)
class _Timed:
    network: str
    accelerated: bool
    make: Callable[[], nn.Module]
    held: bool = False


def time_steps(dense: Run, held: Run) -> tuple[StepTime, ...]:
    """The steps of the two residual networks and of a chain, all in turns, so that a busy machine disturbs all alike.

    Arguments:
        dense, held: finished runs, whose checkpoints are read.
    """
    split = load(held.config.data, variance=held.config.design().input_variance, seed=held.config.seed).train
    x, y = split.images[: held.config.batch], split.labels[: held.config.batch]

    def chain() -> nn.Module:
        return build(_chain_beside(held.config), tuple(x.shape[1:]), int(split.labels.max()) + 1)

    timed = (
        _Timed("ReLU", False, lambda: checkpoint.load(dense.directory)[0]),
        _Timed("CReLU, held", False, lambda: checkpoint.load(held.directory)[0], held=True),
        _Timed("CReLU, held", True, lambda: checkpoint.load(held.directory)[0], held=True),
        _Timed("CReLU, chain", False, chain),
        _Timed("CReLU, chain", True, chain),
    )
    models = [one.make() for one in timed]
    pairs = zip(timed, models, strict=True)
    works = {str(i): _work(one, model, held.config, x, y) for i, (one, model) in enumerate(pairs)}
    times = interleaved(works, _TURNS)
    found = []
    for one, model, spent in zip(timed, models, times.values(), strict=True):
        release(model)  # what is fused while nobody counts zeros, which is at seven of eight steps
        linears = sum(isinstance(module, nn.Linear) for module in model.modules())
        fused = sum(map(len, make_report(model).taken)) if one.accelerated else 0
        found.append(StepTime(one.network, one.accelerated, statistics.median(spent) / _STEPS, fused, linears))
    return tuple(found)


def _chain_beside(config: TrainConfig) -> TrainConfig:
    """A designed chain of as many layers and units, with as many zeros."""
    return TrainConfig(
        data=config.data,
        activation=config.activation,
        sparsity=config.sparsity,
        depth=config.depth,
        width=config.width,
        seed=config.seed,
    )


def _work(timed: _Timed, model: nn.Module, config: TrainConfig, x: Tensor, y: Tensor) -> Work:
    """`_STEPS` steps of AdamW on the same batch."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE)
    if timed.held:
        assert config.sparsity is not None
        seldom = {"every": _STEPS, "gain": 0.2} if timed.accelerated else {}
        hush.hold(model, config.sparsity, **seldom)  # type: ignore[arg-type]
    if timed.accelerated:
        sparse.accelerate(model, optimizer=optimizer)

    def work(_: int) -> None:
        for _step in range(_STEPS):
            loss = nn.functional.cross_entropy(model(x), y)
            if timed.accelerated:
                sparse.step(model, loss)
            else:
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()

    return work
