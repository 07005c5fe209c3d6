"""When and where a benchmark ran, for the page it writes: read off the machine, never written by hand."""

import datetime

from hush.train.machine import this_machine

__all__ = ["day_and_machine"]


def day_and_machine() -> str:
    """2026-11-17, AMD EPYC, 2 cores (1 threads used), avx512, Linux x86_64."""
    return f"{datetime.datetime.now(datetime.UTC).date()}, {this_machine()}"
