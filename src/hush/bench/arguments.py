"""What a benchmark is asked for, looked at before anything is measured: a bad value costs no minute."""

from __future__ import annotations

from collections.abc import Sequence

from .network import plan_for
from .peers import INFERENCE, TRAINING

__all__ = ["check"]


def check(
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
    counts = [("width", w) for w in widths] + [("batch", b) for b in batches]
    counts += [("depth", 1 if depth is None else depth), ("threads", threads), ("repeats", repeats)]
    for name, value in counts:
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    for sparsity in sparsities:
        plan_for(sparsity)
    known = INFERENCE if work == "inference" else TRAINING
    for name in peers or ():
        if name not in known:
            raise ValueError(f"{name!r} is no peer here; the peers are {', '.join(known)}.")
