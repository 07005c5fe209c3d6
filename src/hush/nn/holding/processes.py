"""What the processes that train one model together tell each other, and what is said when one of them does not come.

A hold has a group of its own for this: a process that leaves a step out then keeps the others waiting here, where that
is noticed, and mixes nothing up with the gradients of DistributedDataParallel. It is gloo's wherever torch has gloo,
since Python reads the few numbers anyway, and since its patience ends in an error and not in a killed process.
"""

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hush.nn.holding.units import Window

__all__ = ["Processes", "windows_of_all"]

# Every process takes its step right behind the gradients that all have shared, so all are here within seconds.
PATIENCE = timedelta(minutes=10)


class Processes:
    """The processes of `group`, by default all; made before torch.distributed is initialised, or behind it."""

    def __init__(self, together: bool, group: Any) -> None:
        self.together, self.group = together, group
        self._own: Any = None
        self._world: Any = None  # the group of all that `_own` was made in

    def __getstate__(self) -> dict[str, Any]:
        # A group belongs to the process it was made in.
        return {"together": self.together, "group": None, "_own": None, "_world": None}

    @property
    def are_several(self) -> bool:
        if not (self.together and dist.is_available() and dist.is_initialized()):
            return False
        return dist.get_world_size(self.group) > 1

    @property
    def count(self) -> int:
        return int(dist.get_world_size(self.group))

    @property
    def have_met(self) -> bool:
        """Whether they have a group already, and torch.distributed has not been ended since."""
        return self._own is not None and self._world is dist.group.WORLD

    def meet(self) -> None:
        """Make the group; all of them must come to this, in the same order where there are several holds."""
        if self.group is not None and not dist.is_gloo_available():
            self._own = self.group
        else:
            backend = "gloo" if dist.is_gloo_available() else None
            ranks = dist.get_process_group_ranks(self.group)
            local = self.group is not None  # others of the world do not come
            self._own = dist.new_group(ranks, timeout=PATIENCE, backend=backend, use_local_synchronization=local)
        self._world = dist.group.WORLD

    def sum(self, values: Tensor) -> Tensor:
        """Over all processes, in the same bits for each."""
        return self._shared(values, lambda own: dist.all_reduce(own, group=self._own))

    def largest(self, values: Tensor) -> Tensor:
        """Of all processes, element by element."""
        return self._shared(values, lambda own: dist.all_reduce(own, dist.ReduceOp.MAX, group=self._own))

    def from_first(self, values: Tensor) -> Tensor:
        """What the first process has."""
        return self._shared(values, lambda own: dist.broadcast(own, dist.get_global_rank(self._own, 0), self._own))

    def _shared(self, values: Tensor, collective: Callable[[Tensor], Any]) -> Tensor:
        on_cpu = dist.get_backend(self._own) == "gloo"
        own = values.detach().to(torch.device("cpu") if on_cpu else values.device, copy=True)
        try:
            collective(own)
        except RuntimeError as error:
            raise RuntimeError(
                f"process {dist.get_rank()} could not share the counts of its held layers with the others "
                f"(it waits {PATIENCE.total_seconds():g} s at most): one of them has stopped, has left a step out (an "
                "uneven last batch, an update that only some leave out), or holds other layers. Let all processes take "
                "the same optimizer steps, or hold with sync=False, where each counts for itself."
            ) from error
        return own.to(values.device)


def windows_of_all(
    processes: Processes, windows: Sequence[Window], helps: Sequence[bool]
) -> tuple[list[Window], list[bool]]:
    """What all processes have seen of each layer, and whether all of them would help its dead units.

    Some may not have run a layer. Where they do not agree on its units, nothing is known of it.
    """
    own = torch.tensor([0 if window.seen is None else window.seen.numel() for window in windows], dtype=torch.int64)
    units = processes.largest(own)
    sizes = units.tolist()
    willing = torch.stack([(own == 0) | (own == units), torch.tensor(helps, dtype=torch.bool)]).long()
    agreed, helped = (processes.sum(willing) == processes.count).tolist()

    def joined(rows: Sequence[Tensor | None], otherwise: float) -> Tensor:
        missing = [torch.full((size,), otherwise, dtype=torch.float32) for size in sizes]
        pairs = zip(rows, missing, strict=True)
        return torch.cat([none if row is None or row.shape != none.shape else row.cpu() for row, none in pairs])

    seen = processes.sum(joined([window.seen for window in windows], 0.0)).split(sizes)
    highest = processes.largest(joined([window.highest for window in windows], -math.inf)).split(sizes)
    below = [None if window.lowest is None else -window.lowest for window in windows]
    lowest = (-processes.largest(joined(below, -math.inf))).split(sizes)
    together = [
        Window(s, h, None if window.lowest is None else low) if fit and len(s) else Window(None, None, None)
        for s, h, low, fit, window in zip(seen, highest, lowest, agreed, windows, strict=True)
    ]
    return together, helped
