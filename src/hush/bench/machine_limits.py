"""The machine that a benchmark runs on: what it is, and the measured limits that a time stands beside."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import torch

from hush import sparse
from hush._processor import processor_name

__all__ = ["Machine", "machine"]


@dataclass(frozen=True)
class Machine:
    """Its instruction set as the engine uses it, its speed, and the kind of processor, without its name."""

    isa: str
    sgemm_gflops: float
    read_gb_s: float
    processor: str = ""

    def __str__(self) -> str:
        limits = f"{self.isa}, sgemm peak {self.sgemm_gflops:.0f} GFLOP/s, memory read {self.read_gb_s:.1f} GB/s"
        return f"{self.processor}, {limits}" if self.processor else limits


def machine(threads: int) -> Machine:
    """This machine; its sgemm peak and read bandwidth with so many threads are the best of some trials."""
    torch.set_num_threads(threads)
    a, b, big = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.randn(1 << 25)
    gemm = read = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(a, b)
        middle = time.perf_counter()
        big.sum()
        gemm, read = min(gemm, middle - start), min(read, time.perf_counter() - middle)
    processor = f"{processor_name()}, {os.cpu_count()} cores"
    return Machine(sparse.isa(), 2 * 1024**3 / gemm / 1e9, 4 * (1 << 25) / read / 1e9, processor)
