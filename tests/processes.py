"""What is tested in two processes of this machine that train together."""

import gc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Nothing may wait for ever: a process that does not come is an error after a while.
PATIENCE = timedelta(seconds=90)


def in_two_processes(folder: Path, *parts: Callable[[int], None]) -> None:
    """Each part is called with the process's rank; a failure in either process is one here."""
    mp.spawn(_work, args=(folder / "meeting", parts), nprocs=2)


def _work(rank: int, meeting: Path, parts: tuple[Callable[[int], None], ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=PATIENCE)
    try:
        for part in parts:
            part(rank)
        dist.barrier()  # neither leaves while the other still listens
    finally:
        # A group that a model in a cycle still holds would end with the interpreter, and at times abort it.
        gc.collect()
        dist.destroy_process_group()
