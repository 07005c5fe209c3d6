"""A Lightning callback that logs what `hush.diagnose.Monitor` sees."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from hush.diagnose.monitor import Monitor, Snapshot

__all__ = ["SparsityMonitor"]


class SparsityMonitor(Callback):
    """Every n training steps: q, sparsity, saturated share, dead units, correlation and gradient norm by layer.

    What is logged goes to every logger of the trainer, as "sparsity", "q/phi1" and so on; "sparsity", the mean over
    the layers, is also a metric of the run (`trainer.callback_metrics`), for progress bars and early stopping.

    Arguments:
        every: n.
        module: the name of the submodule to watch, when it is not the LightningModule's whole.
        layers: whether the figures of each layer are logged too, not only the mean sparsity.
    """

    def __init__(self, every: int = 50, module: str = "", layers: bool = True) -> None:
        self.every = every
        self.module = module
        self.layers = layers
        self.history: list[Snapshot] = []
        self._monitor: Monitor | None = None
        self._trainer: Trainer | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._trainer = trainer
        self._monitor = Monitor(self._watched(pl_module), self.every, log=self._log)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        # By now the backward pass is over; reading the history completes the snapshot.
        assert self._monitor is not None
        self.history = self._monitor.history
        if self.history and self.history[-1].step == self._monitor.step - 1:
            pl_module.log("sparsity", self.history[-1].sparsity)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def _watched(self, pl_module: LightningModule) -> nn.Module:
        try:
            return pl_module.get_submodule(self.module)
        except AttributeError:
            names = ", ".join(name for name, _ in pl_module.named_children())
            raise ValueError(f"there is no submodule {self.module!r} to watch; there are {names}.") from None

    def _log(self, snapshot: Snapshot) -> None:
        assert self._trainer is not None
        if self.layers:
            scalars = {name: value for name, value in snapshot.scalars().items() if name != "sparsity"}
            for logger in self._trainer.loggers:
                logger.log_metrics(scalars, step=self._trainer.global_step)

    def _close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self.history = self._monitor.history
            self._monitor = None
