"""How fast this machine multiplies, and how fast it reads from each level of its caches and from memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from hush.sparse import _native

__all__ = ["Roofline", "measure_roofline"]

_TRIALS = 5
_SECONDS = 0.02  # that a trial takes at least
_STRETCH = 256  # floats: what the reading loop takes at a time
# Where the operating system tells nothing of its caches: usual sizes, in bytes.
_USUAL = {1: 32 << 10, 2: 512 << 10, 3: 16 << 20}


@dataclass(frozen=True)
class Roofline:
    """What all of `threads` threads together reach at best.

    Attributes:
        gflops: of multiply-adds on registers.
        gb_s: by where the data lies, "L1", "L2", "L3" and "memory", what is read.
    """

    threads: int
    gflops: float
    gb_s: dict[str, float]

    def roof(self, flops_per_byte: float, level: str = "memory") -> float:
        """GFLOP/s that work of this intensity can reach at most, its data coming from that level."""
        return min(self.gflops, flops_per_byte * self.gb_s[level])

    def __str__(self) -> str:
        reads = ", ".join(f"{level} {rate:.0f}" for level, rate in self.gb_s.items())
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{threads}: {self.gflops:.0f} GFLOP/s of multiply-adds; read, GB/s: {reads}"


def measure_roofline(threads: int) -> Roofline:
    """The best of some trials; takes about a second."""
    with ThreadPoolExecutor(threads) as pool:
        rate = _best_rate(pool, threads, lambda _thread, rounds: _native.multiply(rounds))
        flops = rate * _native.flops_a_round() / 1e9
        reads = {}
        for level, size in _working_sets().items():
            count = max(_STRETCH, size // 4 // _STRETCH * _STRETCH)
            data = [torch.ones(count) for _ in range(threads)]
            passes = _best_rate(pool, threads, lambda thread, passes: _native.read(data[thread], passes))  # noqa: B023
            reads[level] = passes * 4 * count / 1e9
    return Roofline(threads, flops, reads)


def _best_rate(pool: ThreadPoolExecutor, threads: int, work: Callable[[int, int], float]) -> float:
    """Rounds a second of all threads together, when each does `work(thread, rounds)` at the same time."""

    def seconds(rounds: int) -> float:
        began = time.perf_counter()
        list(pool.map(work, range(threads), [rounds] * threads))
        return time.perf_counter() - began

    rounds = 1
    while seconds(rounds) < _SECONDS:
        rounds *= 2
    return max(threads * rounds / seconds(rounds) for _ in range(_TRIALS))


def _working_sets() -> dict[str, int]:
    """Bytes for each thread to read: half of L1 and of L2, a quarter of L3 (others use it too), far more than L3."""
    sizes = {**_USUAL, **_caches()}
    return {"L1": sizes[1] // 2, "L2": sizes[2] // 2, "L3": sizes[3] // 4, "memory": max(4 * sizes[3], 128 << 20)}


def _caches() -> dict[int, int]:
    """Bytes of the data caches of the first core, by level, as Linux tells; L3 at most 32 MB of what may be shared."""
    found = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, level, size = ((folder / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            found[int(level)] = min(int(size[:-1]) << 10, 32 << 20)
    return {level: size for level, size in found.items() if level in _USUAL}
