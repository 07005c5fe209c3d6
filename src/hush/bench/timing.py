"""Peers take turns, medians are compared: whatever disturbs the machine disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from hush import sparse

from .row import OURS, Machine, Row, Setting

__all__ = ["Work", "compare", "interleaved", "machine"]

_REST = 0.1  # seconds: the threads of ONNX Runtime spin for more than 20 ms after a call
_TURN = 0.03  # seconds: a short work is called as often as fits, each time with another input
Work = Callable[[int], object]  # given the number of the turn, so that inputs can differ from turn to turn


def interleaved(works: dict[str, Work], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each work, turn by turn."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        for turn in range(3):
            work(turn)
    for turn in range(repeats):
        for name, work in works.items():
            time.sleep(_REST)  # let the idle threads of the peer before go to sleep
            work(turn)  # bring its own data back into the caches
            calls, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < _TURN or not calls:
                calls += 1
                work(turn + calls)
            times[name].append(1e3 * spent / calls)
    return times


def compare(setting: Setting, works: dict[str, tuple[str, Work]], repeats: int, flops: float) -> list[Row]:
    """A row for each of name → (precision, work)."""
    times = interleaved({name: work for name, (_, work) in works.items()}, repeats)
    median = {name: statistics.median(t) for name, t in times.items()}
    rows = []
    for name, (precision, _) in works.items():
        t = times[name]
        quartiles = statistics.quantiles(t, n=4) if len(t) > 1 else [t[0]] * 3
        peers = [median[p] for p in median if p not in OURS and works[p][0] == precision]
        ratio = min(peers) / median[name] if peers else None
        eager = median["torch_eager"] / median[name] if "torch_eager" in median else None
        spread = quartiles[2] - quartiles[0]
        rows.append(Row(setting, name, precision, median[name], spread, ratio, flops / median[name] / 1e6, eager))
    return rows


def machine(threads: int) -> Machine:
    """The sgemm peak and the read bandwidth, the best of some trials."""
    torch.set_num_threads(threads)
    a, b, big = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.randn(1 << 25)
    gemm = read = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(a, b)
        middle = time.perf_counter()
        big.sum()
        gemm, read = min(gemm, middle - start), min(read, time.perf_counter() - middle)
    return Machine(sparse.isa(), 2 * 1024**3 / gemm / 1e9, 4 * (1 << 25) / read / 1e9)
