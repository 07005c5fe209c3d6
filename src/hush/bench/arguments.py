"""What a benchmark is asked for, looked at before anything is measured: a bad value costs no minute."""

from __future__ import annotations

from collections.abc import Sequence

from .peers import INFERENCE, TRAINING
from .random_networks import depth_for, plan_for

__all__ = ["check_arguments"]

_MOST_NUMBERS = 1 << 30  # 4 GB in f32, of which every peer has a copy
_MOST_THREADS = 1024


def check_arguments(
    work: str,
    widths: Sequence[int],
    depth: int | None,
    batches: Sequence[int],
    sparsities: Sequence[float],
    threads: int,
    repeats: int,
    peers: Sequence[str] | None = None,
) -> None:
    """Raises ValueError at the first value that cannot be run."""
    _check_counts(widths, depth, batches, threads, repeats)
    for sparsity in sparsities:
        plan_for(sparsity)
    known = INFERENCE if work == "inference" else TRAINING
    for name in peers or ():
        if name not in known:
            raise ValueError(f"{name!r} is no peer here; the peers are {', '.join(known)}.")


def _check_counts(widths: Sequence[int], depth: int | None, batches: Sequence[int], threads: int, repeats: int) -> None:
    counts = [("width", w) for w in widths] + [("batch", b) for b in batches]
    counts += [("depth", 1 if depth is None else depth), ("threads", threads), ("repeats", repeats)]
    for name, value in counts:
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if threads > _MOST_THREADS:
        raise ValueError(f"threads must be at most {_MOST_THREADS}, got {threads}.")
    for width in widths:
        layers = depth_for(width) if depth is None else depth
        if layers * width * width > _MOST_NUMBERS:
            raise ValueError(f"{layers} layers × {width} have more than {_MOST_NUMBERS} weights; take fewer of them.")
        for batch in batches:
            if batch * width > _MOST_NUMBERS:
                raise ValueError(f"a batch of {batch} × {width} has more than {_MOST_NUMBERS} numbers; take fewer.")
