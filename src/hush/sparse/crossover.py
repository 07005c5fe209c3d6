"""Up to which density the sparse kernels pay on this machine: measured once, kept in a file, never guessed.

For a width and a batch, the dense time t_d and the sparse times at three densities are measured in turns; the sparse
cost grows with the number of active units,

    t_s(ρ) = a + b ρ,      crossover ρ* = (t_d − a) / b,

and a link whose density is above ρ* runs dense. Medians of interleaved turns, half a second for each width and batch
that is met for the first time. HUSH_CROSSOVER=always or =never overrules the measurement.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from . import _cache, _engine
from .activation import Activation

__all__ = ["describe", "forget", "limit", "measure", "table"]

_WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096)
_BATCHES = (1, 4, 16, 64, 128, 512)
_DENSITIES = (0.1, 0.3, 0.5)
_SECONDS = 0.5
_MARGIN = 0.85  # of ρ*: a link that sits on the line is better off dense, which does not depend on its density
_lock = threading.RLock()
_known: dict[str, float] | None = None
_limits: dict[tuple[int, int, int, bool], float] = {}


def limit(width: int, batch: int, training: bool) -> float:
    """The density up to which a link of that width and batch runs sparse."""
    forced = os.environ.get("HUSH_CROSSOVER")
    if forced in ("always", "never"):
        return 1.0 if forced == "always" else -1.0
    threads = torch.get_num_threads()
    found = _limits.get((width, batch, threads, training))
    if found is None:
        with _lock:
            near = _nearest(width, _WIDTHS), _nearest(batch, _BATCHES)
            key = f"{near[0]}x{near[1]}x{threads}{'t' if training else 'i'}"
            known = _load()
            if key not in known:
                known[key] = measure(*near, training)
                _cache.write(known)
            found = _limits[width, batch, threads, training] = known[key]
    return found


def table() -> dict[str, float]:
    """What has been measured so far: 'widthxbatchxthreads' followed by i (inference) or t (training), and ρ*."""
    with _lock:
        return dict(_load())


def forget() -> None:
    """Measure everything again when it is next met."""
    global _known
    with _lock:
        _known = {}
        _limits.clear()
        _cache.write(_known)


def describe() -> str:
    """The table in words, a line for each width and batch."""
    names = {"i": "inference", "t": "training"}
    lines = [f"{_cache.machine()}: the engine pays up to this density of active units"]
    for key, value in sorted(table().items(), key=lambda item: (item[0][-1], *map(int, item[0][:-1].split("x")))):
        width, batch, threads = key[:-1].split("x")
        lines.append(f"  {names[key[-1]]:9}  width {width:>4}  batch {batch:>3}  threads {threads:>2}  {value:.2f}")
    return "\n".join(lines)


def _load() -> dict[str, float]:
    global _known
    if _known is None:
        _known = _cache.read()
    return _known


def _nearest(value: int, steps: tuple[int, ...]) -> int:
    return min(steps, key=lambda step: max(step / max(value, 1), max(value, 1) / step))


def _medians(works: Sequence[Callable[[], None]]) -> list[float]:
    """The median time of each, taken in turns: what another process disturbs, it disturbs for all."""
    times: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    stop = time.perf_counter() + _SECONDS
    while len(times[0]) < 5 or (time.perf_counter() < stop and len(times[0]) < 200):
        for work, kept in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            kept.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


@torch.no_grad()
def measure(width: int, batch: int, training: bool) -> float:
    """ρ* for a chain of equal layers, between 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    depth = 8 if width <= 512 else 2
    weights = [torch.randn(width, width, generator=generator) / width**0.5 for _ in range(depth)]
    h = torch.randn(batch, width, generator=generator)
    grad = torch.randn(batch, width, generator=generator)
    works = [_sparse(rho, weights, h, grad, training) for rho in _DENSITIES]
    *sparse, dense = _medians([*works, _dense(weights, h, grad, training)])
    return crossing(_DENSITIES, sparse, dense)


def crossing(densities: Sequence[float], sparse: Sequence[float], dense: float) -> float:
    """ρ* of the line through the sparse times, by least squares; a line that does not rise decides all or nothing."""
    centre, middle = statistics.fmean(densities), statistics.fmean(sparse)
    slope = sum((d - centre) * (t - middle) for d, t in zip(densities, sparse, strict=True))
    slope /= sum((d - centre) ** 2 for d in densities)
    if slope <= 0.0:
        return 1.0 if max(sparse) <= dense else 0.0
    return _MARGIN * max(0.0, min(1.0, centre + (dense - middle) / slope))


def _dense(weights: list[torch.Tensor], h: torch.Tensor, grad: torch.Tensor, training: bool) -> Callable[[], None]:
    def work() -> None:
        x, kept = h, []
        for w in weights:
            kept.append(F.relu(x))
            x = F.linear(kept[-1], w)
        if training:
            d = grad
            for k in reversed(range(len(weights))):
                d.t().mm(kept[k])
                if k:  # the first input seldom wants a gradient, and dense saves more by that than sparse
                    d = d.mm(weights[k]).mul_(kept[k] > 0)

    return work


def _sparse(
    density: float, weights: list[torch.Tensor], h: torch.Tensor, grad: torch.Tensor, training: bool
) -> Callable[[], None]:
    # Weights are scaled so that every layer sees pre-activations of variance 1, hence the same density.
    width, depth = h.shape[1], len(weights)
    threshold = float(torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(1.0 - density)))
    phi = Activation.shifted_relu(threshold)
    scale = float(phi(torch.randn(100_000, generator=torch.Generator().manual_seed(1))).square().mean()) ** -0.5
    scaled = [_engine.input_major(w * scale) for w in weights]
    chain = _engine.build(scaled, [None] * depth, [phi] * depth)

    def work() -> None:
        assert len(scaled) == depth  # the chain reads this memory, and the closure keeps it
        _, saved, _ = _engine.run(chain, h, width, training)
        if saved is not None:
            gradients = [torch.empty(width, width) for _ in weights]  # fresh memory, as a step takes it
            addresses = [a for g in gradients for a in (g.data_ptr(), 0, 0, 0, 0, 0)]
            wants, groups = [1] * depth, [0, 0] * depth
            _engine.run_backward(chain, grad, saved, None, wants, [_engine.GRADIENT], groups, addresses)

    return work
