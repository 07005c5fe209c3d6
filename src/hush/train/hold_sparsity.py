"""`hush.hold` in Lightning: a callback for any trainer, and what `hush train --hold` does."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from hush.nn.holding import Hold, HoldReport, hold, release
from hush.train.config import TrainConfig

__all__ = ["HoldSparsity", "hold_run"]


class HoldSparsity(Callback):
    """Holds the share of zeros of every hush activation while the trainer fits, and logs it as "zeros".

    It is part of the module's state_dict, so a run that goes on from a checkpoint goes on bit for bit. Behind
    `trainer.fit` the thresholds stay where they are, and `callback.report` tells of each layer.

    Arguments:
        sparsity: the share of zeros, or shares by the names of layers.
        module: the name of the submodule to hold, when it is not the LightningModule's whole.
        options: whatever else `hush.hold` takes; the window is an epoch unless it is given.
    """

    def __init__(self, sparsity: float | Mapping[str, float] = 0.95, *, module: str = "", **options: Any) -> None:
        self.sparsity, self.module, self.options = sparsity, module, options
        self.hold: Hold | None = None
        self.report: HoldReport | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # Before Lightning loads a checkpoint, whose state then finds the hold.
        if stage == "fit" and self.hold is None:
            self.hold = hold(self._held(pl_module), self.sparsity, **self.options)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        batches = trainer.num_training_batches
        if self.hold is not None and "window" not in self.options and isinstance(batches, int):
            self.hold.window = max(1, batches // trainer.accumulate_grad_batches)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.hold is not None
        self.report = self.hold.report()
        known = [layer.zeros_of_window for layer in self.report.layers if layer.zeros_of_window is not None]
        if known:
            pl_module.log("zeros", sum(known) / len(known))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.hold is not None:
            self.report = self.hold.report()
            self.hold.remove()
            self.hold = None

    def _held(self, pl_module: LightningModule) -> nn.Module:
        try:
            return pl_module.get_submodule(self.module)
        except AttributeError:
            names = ", ".join(name for name, _ in pl_module.named_children())
            raise ValueError(f"there is no submodule {self.module!r} to hold; there are {names}.") from None


def hold_run(config: TrainConfig, model: nn.Module, epoch: int) -> Hold:
    """The hold of a run: at the sparsity of its design, with an epoch as its window.

    Layers that the engine runs as one are measured at every eighth step only, and corrected by as much more then.
    """
    as_one = config.engine == "sparse" and config.arch in ("mlp", "residual_mlp")
    release(model)
    return hold(model, config.design().sparsity, window=epoch, every=8 if as_one else 1, gain=0.2 if as_one else 0.05)
