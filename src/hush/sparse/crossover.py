"""Up to which density the sparse kernels pay on this machine: measured, kept in a file, never guessed.

For a width and a batch, the dense time t_d and the sparse times at three densities are measured in turns; the sparse
cost grows with the number of active units,

    t_s(ρ) = a + b ρ,      crossover ρ* = (t_d − a) / b,

and a stretch whose density is above ρ* runs dense. Medians of interleaved turns. `accelerate` measures what it does not
know yet, about a second for each width that is met for the first time on a machine; a forward never does, it takes the
nearest of what is known. HUSH_CROSSOVER=always or =never overrules the measurement.
"""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .activation import Activation
from .backend import backend_for
from .crossover_file import machine_name, read_crossovers, write_crossovers
from .layout import input_major
from .step_plan import StepPlan

__all__ = ["Setting", "describe", "ensure_measured", "forget", "limit", "measure", "table"]

_WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096)
_BATCHES = (1, 16, 128, 512)
_DENSITIES = (0.1, 0.3, 0.5)
_SECONDS = 0.12
_TURNS = 3
_MOST_FLOPS = 4e9  # of one dense run: a larger batch is judged by the next smaller one
_MARGIN = 0.85  # of ρ*: a stretch that sits on the line is better off dense, which does not depend on its density
_lock = threading.RLock()
_known: dict[str, float] | None = None


class Setting(NamedTuple):
    """What a crossover depends on. `turns`: the weights lie row by row and are turned around at each call."""

    width: int
    batch: int
    threads: int
    training: bool
    turns: bool

    @property
    def key(self) -> str:
        work = "t" if self.training else "i"
        return f"{self.width}x{self.batch}x{self.threads}{work}{'r' if self.turns else ''}"

    @classmethod
    def from_key(cls, key: str) -> Setting:
        turns = key.endswith("r")
        body = key.removesuffix("r")
        width, batch, threads = (int(part) for part in body[:-1].split("x"))
        return cls(width, batch, threads, body[-1] == "t", turns)


def limit(width: int, batch: int, training: bool, turns: bool) -> float:
    """The density up to which a stretch of that width and batch runs sparse: that of the nearest measured setting.

    Where nothing comparable has been measured (a model that was accelerated on another machine), 0: it runs dense.
    """
    forced = os.environ.get("HUSH_CROSSOVER")
    if forced in ("always", "never"):
        return 1.0 if forced == "always" else -1.0
    asked = Setting(width, batch, torch.get_num_threads(), training, turns)
    found = _nearest_known.get(asked)
    if found is None:
        known = [(Setting.from_key(key), value) for key, value in _load().items()]
        alike = [(_distance(asked, s), value) for s, value in known if s.training == training and s.turns == turns]
        found = _nearest_known[asked] = min(alike)[1] if alike else 0.0
    return found


_nearest_known: dict[Setting, float] = {}


def _distance(a: Setting, b: Setting) -> float:
    """In octaves; another number of threads counts most."""
    width, batch = (abs(math.log2(max(x, 1) / y)) for x, y in ((a.width, b.width), (a.batch, b.batch)))
    return width + batch + 100.0 * abs(a.threads - b.threads)


def ensure_measured(widths: Iterable[int], turns: bool) -> None:
    """Measure what is not known of stretches of these widths on this machine, with as many threads as torch has now."""
    if os.environ.get("HUSH_CROSSOVER") in ("always", "never"):
        return
    with _lock:
        known = _load()
        wanted = [s for width in {_nearest_width(w) for w in widths} for s in _settings_of(width, turns)]
        missing = [s for s in wanted if s.key not in known]
        for setting in missing:
            known[setting.key] = measure(setting)
        if missing:
            _nearest_known.clear()
            write_crossovers(known)


def _settings_of(width: int, turns: bool) -> Iterator[Setting]:
    for batch in _BATCHES:
        for training in (False, True):
            if batch == 1 or 2.0 * batch * width**2 * _depth(width) * (3 if training else 1) <= _MOST_FLOPS:
                yield Setting(width, batch, torch.get_num_threads(), training, turns)


def table() -> dict[str, float]:
    """What has been measured so far: Setting.key and ρ*."""
    with _lock:
        return dict(_load())


def forget() -> None:
    """Measure everything again when a model is next accelerated."""
    global _known
    with _lock:
        _known = {}
        _nearest_known.clear()
        write_crossovers(_known)


def describe() -> str:
    """The table in words, a line for each setting."""
    lines = [f"{machine_name()}: the engine pays up to this density of active units"]
    for setting, value in sorted((Setting.from_key(key)[::-1], value) for key, value in table().items()):
        turns, training, threads, batch, width = setting
        work = "training" if training else "inference"
        layout = "torch's layout" if turns else "input-major"
        lines.append(f"  {work:9}  {layout:14}  width {width:>4}  batch {batch:>3}  threads {threads:>2}  {value:.2f}")
    return "\n".join(lines)


def _load() -> dict[str, float]:
    global _known
    with _lock:
        if _known is None:
            _known = read_crossovers()
        return _known


def _nearest_width(value: int) -> int:
    return min(_WIDTHS, key=lambda step: max(step / max(value, 1), max(value, 1) / step))


def _depth(width: int) -> int:
    return 8 if width <= 512 else 2


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
    """ρ* for a chain of equal layers, between 0 and 1."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    width, batch = setting.width, setting.batch
    weights = [normal(width, width) / width**0.5 for _ in range(_depth(width))]
    h, grad = normal(batch, width), normal(batch, width)
    sample = normal(100_000)
    works = [_sparse(rho, weights, h, grad, sample, setting) for rho in _DENSITIES]
    *sparse, dense = _medians([*works, _dense(weights, h, grad, setting.training)])
    return crossing(_DENSITIES, sparse, dense)


def crossing(densities: Sequence[float], sparse: Sequence[float], dense: float) -> float:
    """ρ* of the line through the sparse times, by least squares; a line that does not rise decides all or nothing."""
    centre, middle = statistics.fmean(densities), statistics.fmean(sparse)
    slope = sum((d - centre) * (t - middle) for d, t in zip(densities, sparse, strict=True))
    slope /= sum((d - centre) ** 2 for d in densities)
    if slope <= 0.0:
        return 1.0 if max(sparse) <= dense else 0.0
    return _MARGIN * max(0.0, min(1.0, centre + (dense - middle) / slope))


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
                if k:  # the first input seldom wants a gradient, and dense saves more by that than sparse
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
        result.program.backward(grad, result.saved, False, plan)

    return work
