"""The timings behind a crossover: dense and sparse runs of one setting in turns, and where their lines cross."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .activation import Activation
from .backend import backend_for
from .layout import input_major
from .linear_products import sparse_products
from .step_plan import StepPlan

__all__ = ["HIGHEST", "Setting", "crossing", "measure"]

_DENSITIES = (0.1, 0.3, 0.5)
_SECONDS = 0.12
_TURNS = 3
_EXPANSION = 4  # outputs for each input of a Linear that stands before an activation, as in most transformers
# What a line through timings of densities up to 0.5 is trusted for. On a busy machine it comes out nearly flat, and
# would send inputs without any zeros to the sparse kernels.
HIGHEST = 0.6
_MARGIN = 0.85  # of ρ*: a stretch that sits on the line is better off dense, which does not depend on its density


class Setting(NamedTuple):
    """What a crossover depends on.

    Attributes:
        training: forward and backward by the zeros of what is read; else the forward alone.
        turns: the weights lie the other way than the kernels read them and are turned around at each call.
        by_gradient: a backward by the zeros of ∂L/∂out, whose forward is dense.
    """

    width: int
    batch: int
    threads: int
    training: bool
    turns: bool
    by_gradient: bool = False

    @property
    def key(self) -> str:
        work = "g" if self.by_gradient else "t" if self.training else "i"
        return f"{self.width}x{self.batch}x{self.threads}{work}{'r' if self.turns else ''}"

    @classmethod
    def from_key(cls, key: str) -> Setting:
        turns = key.endswith("r")
        body = key.removesuffix("r")
        width, batch, threads = (int(part) for part in body[:-1].split("x"))
        return cls(width, batch, threads, body[-1] in "tg", turns, body[-1] == "g")

    @property
    def flops(self) -> float:
        """Of one dense run."""
        products = 2 / _EXPANSION if self.by_gradient else _depth(self.width) * (3 if self.training else 1)
        return 2.0 * self.batch * self.width**2 * products


def _depth(width: int) -> int:
    return 8 if width <= 512 else 2 if width <= 1024 else 1


def _medians(works: Sequence[Callable[[], None]]) -> list[float]:
    """The median time of each, taken in turns: what another process disturbs, it disturbs for all."""
    times: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    stop = time.perf_counter() + _SECONDS
    while len(times[0]) < _TURNS or (time.perf_counter() < stop and len(times[0]) < 200):
        for work, kept in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            kept.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


@torch.no_grad()
def measure(setting: Setting) -> float:
    """ρ* for a chain of equal layers, or for the backward of one Linear by the zeros of ∂L/∂out; between 0 and 1."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    width, batch = setting.width, setting.batch
    if setting.by_gradient:
        inputs = -(-width // _EXPANSION)
        return _measure_by_gradient(normal(width, inputs), normal(batch, inputs), normal(batch, width), setting.turns)
    weights = [normal(width, width) / width**0.5 for _ in range(_depth(width))]
    h, grad = normal(batch, width), normal(batch, width)
    sample = normal(100_000)
    works = [_sparse(rho, weights, h, grad, sample, setting) for rho in _DENSITIES]
    *sparse, dense = _medians([*works, _dense(weights, h, grad, setting.training)])
    return crossing(_DENSITIES, sparse, dense)


def _measure_by_gradient(weight: Tensor, x: Tensor, grad: Tensor, turns: bool) -> float:
    backend = backend_for(x)
    assert backend is not None
    weight = input_major(weight) if turns else weight

    def sparse(density: float) -> Callable[[], None]:
        quiet = grad * (grad > statistics.NormalDist().inv_cdf(1.0 - density))
        return lambda: sparse_products(backend, quiet, x, weight) and None

    def dense() -> None:
        grad.mm(weight)
        grad.t().mm(x)

    *times, whole = _medians([*(sparse(rho) for rho in _DENSITIES), dense])
    return crossing(_DENSITIES, times, whole)


def crossing(densities: Sequence[float], sparse: Sequence[float], dense: float) -> float:
    """ρ* of the line through the sparse times, by least squares; a line that does not rise decides most or nothing."""
    centre, middle = statistics.fmean(densities), statistics.fmean(sparse)
    slope = sum((d - centre) * (t - middle) for d, t in zip(densities, sparse, strict=True))
    slope /= sum((d - centre) ** 2 for d in densities)
    if slope <= 0.0:
        return HIGHEST if max(sparse) <= dense else 0.0
    return min(HIGHEST, _MARGIN * max(0.0, centre + (dense - middle) / slope))


def _dense(weights: list[Tensor], h: Tensor, grad: Tensor, training: bool) -> Callable[[], None]:
    def work() -> None:
        x, kept = h, []
        for w in weights:
            kept.append(F.relu(x))
            x = F.linear(kept[-1], w)
        if training:
            d = grad
            for k in reversed(range(len(weights))):
                d.t().mm(kept[k])
                # The first input of a chain seldom wants a gradient, and dense saves more by that than sparse.
                if k or len(weights) == 1:
                    d = d.mm(weights[k]).mul_(kept[k] > 0)

    return work


def _sparse(
    density: float, weights: list[Tensor], h: Tensor, grad: Tensor, sample: Tensor, setting: Setting
) -> Callable[[], None]:
    # Weights are scaled so that every layer sees pre-activations of variance 1, hence the same density.
    threshold = statistics.NormalDist().inv_cdf(1.0 - density)
    phi = Activation.shifted_relu(threshold)
    scale = float(phi(sample).square().mean()) ** -0.5
    scaled = [w * scale if setting.turns else input_major(w * scale) for w in weights]
    backend = backend_for(h)
    assert backend is not None
    program = backend.compile(scaled, [None] * len(scaled), [phi] * len(scaled))

    def work() -> None:
        assert scaled  # the program reads this memory, and the closure keeps it
        if not setting.training:
            program.infer(h)
            return
        result = program.forward(h)
        plan = StepPlan(len(scaled))
        for layer, w in enumerate(scaled):
            plan.write(layer, "weight", w.new_empty(w.shape))  # fresh memory, as a step takes it
        result.program.backward(grad, result.saved, len(scaled) == 1, plan)

    return work
