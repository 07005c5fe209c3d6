"""Peers take turns, medians are compared: whatever disturbs the machine disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .measurement import OURS, Measurement, Setting

__all__ = ["Timed", "Work", "compare", "interleaved"]

_REST = 0.1  # seconds: the threads of ONNX Runtime spin for more than 20 ms after a call
_TURN = 0.03  # seconds: a short work is called as often as fits, each time with another input
Work = Callable[[int], object]  # given the number of the turn, so that inputs can differ from turn to turn


class Timed(NamedTuple):
    """A work to be timed, and the precision of its weights: f32 or bf16."""

    precision: str
    work: Work


def interleaved(works: Mapping[str, Work], repeats: int) -> dict[str, list[float]]:
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


def compare(
    setting: Setting,
    works: Mapping[str, Timed],
    repeats: int,
    flops: float,
    errors: Mapping[str, float] | None = None,
    bound: float | None = None,
) -> list[Measurement]:
    """A measurement for each of the works by name; `errors` are those of their results, where they were compared.

    `bound`: what counting zeros alone would promise, where that is not 1/(1 − s).
    """
    times = interleaved({name: timed.work for name, timed in works.items()}, repeats)
    median = {name: statistics.median(t) for name, t in times.items()}
    found = []
    for name, timed in works.items():
        same = [median[peer] for peer in median if peer not in OURS and works[peer].precision == timed.precision]
        found.append(
            Measurement(
                setting,
                name,
                timed.precision,
                median[name],
                _interquartile_range(times[name]),
                min(same) / median[name] if same else None,
                flops / median[name] / 1e6,
                median["torch_eager"] / median[name] if "torch_eager" in median else None,
                (errors or {}).get(name),
                bound,
            )
        )
    return found


def _interquartile_range(values: list[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return high - low
