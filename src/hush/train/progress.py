"""A progress bar with loss, accuracy and sparsity: one line, redrawn."""

import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hush.train.record import Record
from hush.train.task import Task

__all__ = ["ProgressLine"]

_EVERY = 10


class ProgressLine(Callback):
    """Shows the epoch, the share done, the running loss, the last validation accuracy and the sparsity."""

    def __init__(self, record: Record, label: str, epochs: int, console: Console | None = None) -> None:
        self.record, self.label, self.epochs = record, label, epochs
        self._loss = math.nan
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[figures]}"),
            TimeRemainingColumn(compact=True),
            console=console or Console(stderr=True),
        )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        total = self.epochs * int(trainer.num_training_batches)
        self._bar.start()
        self._task = self._bar.add_task(self.label, total=total, completed=trainer.global_step, figures="")

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        assert isinstance(pl_module, Task)
        old = pl_module.loss if math.isnan(self._loss) else self._loss
        self._loss = 0.95 * old + 0.05 * pl_module.loss
        if trainer.is_global_zero and trainer.global_step % _EVERY == 0:
            self._bar.update(self._task, completed=trainer.global_step, figures=self._figures(trainer))

    def _figures(self, trainer: Trainer) -> str:
        metrics = self.record.rows.metrics
        accuracy = f"{metrics[-1].validation_accuracy:.3f}" if metrics else "  –  "
        epoch = min(self.epochs, trainer.current_epoch + 1)
        return f"epoch {epoch}/{self.epochs}  loss {self._loss:.3f}  accuracy {accuracy}  s {self.record.sparsity:.3f}"

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._bar.stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._bar.stop()
