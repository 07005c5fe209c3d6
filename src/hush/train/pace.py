"""How long the run will take, told once, from its own first steps."""

import time
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from hush.train.tables import FIRST_STEPS

__all__ = ["Pace", "in_words"]

# The first steps are recorded layer by layer and take longer than those that follow.
_FROM = FIRST_STEPS + 1
_STEPS = 10


class Pace(Callback):
    """Times ten steps after the first ones, and says what the whole run will take at that pace."""

    def __init__(self, epochs: int, say: Callable[[str], None]) -> None:
        self.epochs, self.say = epochs, say
        self._first_step = 0
        self._since = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_step = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        done = trainer.global_step - self._first_step
        if done == _FROM:
            self._since = time.perf_counter()
        if done != _FROM + _STEPS or not trainer.is_global_zero:
            return
        seconds = (time.perf_counter() - self._since) / _STEPS
        left = self.epochs * int(trainer.num_training_batches) - trainer.global_step
        self.say(
            f"At the pace of these {_STEPS} steps, {1e3 * seconds:.3g} ms each, the remaining {left:,} steps of "
            f"{self.epochs} epochs take about {in_words(seconds * left)}, validation aside."
        )


def in_words(seconds: float) -> str:
    """ "40 seconds", "7 minutes", "3.2 hours"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
