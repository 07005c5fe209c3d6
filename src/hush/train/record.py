"""What a run leaves in its directory while it goes: curves, layers, and the checkpoint to go on from.

Everything recorded lives in the checkpoint too, and the tables are written anew from it at the end of each epoch, each
file by one rename. So a killed run goes on from its last whole epoch with tables that end exactly there.
"""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from hush.data import Split
from hush.diagnose.monitor import Monitor, Snapshot
from hush.train.config import TrainConfig
from hush.train.errors import RunError
from hush.train.machine import utc_now
from hush.train.scoring import evaluate
from hush.train.tables import FIRST_STEPS, EpochRow, LayerRow, LossRow, write_table
from hush.train.task import Diverged, Task
from hush.train.watched_weights import weight_beside

__all__ = ["Ended", "Record", "Recorded"]

_LOSS_EVERY = 10


class Ended(Exception):  # noqa: N818 - a result that ends the loop, no error
    """Before its last epoch: still at chance after `give_up` epochs, or as accurate as is `enough`."""

    def __init__(self, gave_up: bool) -> None:
        super().__init__("gave up" if gave_up else "accurate enough")
        self.gave_up = gave_up


@dataclass
class Recorded:
    """The rows of the three tables so far."""

    metrics: list[EpochRow] = field(default_factory=list)
    losses: list[LossRow] = field(default_factory=list)
    layers: list[LayerRow] = field(default_factory=list)

    def by_file(self) -> dict[str, Sequence[Sequence[float]]]:
        """The rows under the names of their files, without the ending."""
        return {"metrics": self.metrics, "losses": self.losses, "layers": self.layers}

    def to_plain(self) -> dict[str, list[list[float]]]:
        """As lists of numbers: a checkpoint that is read safely may hold nothing else."""
        return {name: [list(row) for row in rows] for name, rows in self.by_file().items()}

    @classmethod
    def from_plain(cls, plain: dict[str, list[list[Any]]]) -> "Recorded":
        """What `to_plain` gave."""
        return cls(
            [EpochRow(*row) for row in plain["metrics"]],
            [LossRow(*row) for row in plain["losses"]],
            [LayerRow(*row) for row in plain["layers"]],
        )


class Record(Callback):
    """Keeps the three tables and saves the run at the end of every epoch."""

    def __init__(
        self, config: TrainConfig, directory: Path, validation: Split, chance: float, fingerprint: str = ""
    ) -> None:
        self.config, self.directory = config, directory
        self.validation, self.chance = validation, chance
        self.fingerprint = fingerprint  # of the data
        self.rows = Recorded()
        self.started = utc_now()  # of the run's first process, when others have gone on with it
        self.sparsity = math.nan  # of the last watched step
        self.seconds = 0.0
        self._since = time.perf_counter()
        self._epoch_losses: list[float] = []
        self._monitor: Monitor | None = None

    def state_dict(self) -> dict[str, Any]:
        state = {"tables": self.rows.to_plain(), "seconds": self.seconds, "started": self.started}
        return state | ({"fingerprint": self.fingerprint} if self.fingerprint else {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict.get("fingerprint", "") != self.fingerprint:
            raise RunError(
                f"{self.directory} began with another text (fingerprint {state_dict.get('fingerprint')}) than this "
                f"Python has ({self.fingerprint}): go on with the Python it began with, or remove it."
            )
        self.rows, self.seconds = Recorded.from_plain(state_dict["tables"]), state_dict["seconds"]
        self.started = state_dict.get("started", self.started)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Task)
        self._end_early()  # it may have been killed between the last epoch and the result
        self._since = time.perf_counter()
        self._monitor = Monitor(pl_module.model, self.config.watch, keep=1, first=FIRST_STEPS, step=trainer.global_step)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        # The backward pass is over and the weights are still those that made it.
        assert isinstance(pl_module, Task)
        assert self._monitor is not None
        history = self._monitor.history
        if history and history[-1].step == trainer.global_step:
            self._keep_layers(pl_module, history[-1])

    def _keep_layers(self, task: Task, snapshot: Snapshot) -> None:
        self.sparsity = snapshot.sparsity
        broken = 0
        for layer, figures in enumerate(snapshot.layers, start=1):
            weight = weight_beside(task.model, figures.name)
            of_weight = math.nan if weight.grad is None else float(weight.grad.double().norm())
            own = math.nan if figures.gradient is None else figures.gradient
            if figures.gradient is not None and not math.isfinite(figures.gradient):
                broken = layer  # the backward pass goes down: it began at the highest
            self.rows.layers.append(
                LayerRow(
                    step=snapshot.step,
                    layer=layer,
                    q=figures.q,
                    sparsity=figures.sparsity,
                    saturated=figures.saturated,
                    dead=figures.dead,
                    gradient_norm=own,
                    weight_gradient_norm=of_weight,
                )
            )
        if broken:
            raise Diverged(snapshot.step, broken, "the gradient is not finite")

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        assert isinstance(pl_module, Task)
        step = trainer.global_step - 1
        self._epoch_losses.append(pl_module.loss)
        if step < FIRST_STEPS or step % _LOSS_EVERY == 0:
            self.rows.losses.append(LossRow(step, pl_module.loss))
            self._tell(trainer, {"loss": pl_module.loss, "sparsity": self.sparsity}, step)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Task)
        score = evaluate(pl_module.model, self.validation)
        self._clock()
        mean = sum(self._epoch_losses) / max(1, len(self._epoch_losses))
        self._epoch_losses = []
        row = EpochRow(
            epoch=trainer.current_epoch + 1,
            step=trainer.global_step,
            train_loss=mean,
            validation_loss=score.loss,
            validation_accuracy=score.accuracy,
            sparsity=score.sparsity,
            learning_rate=trainer.optimizers[0].param_groups[0]["lr"],
            seconds=round(self.seconds, 3),
        )
        self.rows.metrics.append(row)
        self._tell(trainer, {f"epoch/{name}": value for name, value in row._asdict().items()}, trainer.global_step)
        self.save(trainer)
        self._end_early()

    def _end_early(self) -> None:
        accuracies = [row.validation_accuracy for row in self.rows.metrics]
        if not 0 < len(accuracies) < self.config.epochs:
            return
        if self.config.enough is not None and accuracies[-1] >= self.config.enough:
            raise Ended(gave_up=False)
        patience = self.config.give_up
        if patience is not None and len(accuracies) >= patience and max(accuracies) < 1.5 * self.chance:
            raise Ended(gave_up=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.close()

    def save(self, trainer: Trainer) -> None:
        """Checkpoint first: tables that are behind it are written anew when the run goes on."""
        scratch = self.directory / f".last.{os.getpid()}.ckpt"
        try:
            trainer.save_checkpoint(scratch)
            if trainer.is_global_zero:
                os.replace(scratch, self.directory / "last.ckpt")
                self.write()
        finally:
            if trainer.is_global_zero:
                scratch.unlink(missing_ok=True)

    def _tell(self, trainer: Trainer, figures: dict[str, float], step: int) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(figures, step)

    def write(self) -> None:
        for name, rows in self.rows.by_file().items():
            write_table(self.directory, name, rows)

    def close(self) -> None:
        self._clock()
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def _clock(self) -> None:
        now = time.perf_counter()
        self.seconds += now - self._since
        self._since = now
