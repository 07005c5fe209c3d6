"""Where and when a run was computed, recorded by the run itself: whoever prints it later may sit elsewhere."""

import datetime
import os
import platform
from dataclasses import dataclass

from hush._processor import processor_name

__all__ = ["Machine", "this_machine", "usable_cores", "utc_now"]


@dataclass(frozen=True)
class Machine:
    """The kind of machine, without its name.

    Attributes:
        isa: the instruction set the sparse kernels use here.
    """

    processor: str
    cores: int
    threads: int
    isa: str
    system: str

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores ({self.threads} threads used), {self.isa}, {self.system}"


def this_machine() -> Machine:
    """The machine this process runs on, and the threads torch has in it."""
    import torch

    from hush.sparse import isa

    return Machine(
        processor=processor_name(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        isa=isa(),
        system=f"{platform.system()} {platform.machine()}",
    )


def usable_cores() -> int:
    """Those this process may run on: fewer than the machine has under taskset or in a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def utc_now() -> str:
    """Now, to the second: "2026-11-17T03:20:00+00:00"."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
