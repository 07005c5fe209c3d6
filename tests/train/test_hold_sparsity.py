import dataclasses
import os

import pytest
import torch

import hush

pytest.importorskip("lightning")
from hush.nn import checkpoint
from hush.train import TrainConfig, train

# What Lightning and its dependencies warn about is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

DESIGN = hush.design("crelu", 0.8, v_prime=0.7, width=30, depth=3)
SMALL = TrainConfig(
    arch="residual_mlp", sparsity=0.9, depth=4, width=40, epochs=3, batch=32, lr=3e-3, watch=50, hold=True
)


def test_a_held_run_keeps_its_sparsity_and_its_checkpoint_has_the_thresholds(tmp_path):
    run = train(SMALL, tmp_path, progress=False)
    loose = train(dataclasses.replace(SMALL, hold=False), tmp_path, progress=False)
    assert run.directory != loose.directory
    assert abs(run.result.sparsity - 0.9) < 0.015 < abs(loose.result.sparsity - 0.9)
    model, design = checkpoint.load(run.directory)
    moved = [m.threshold for m in model.modules() if hasattr(m, "threshold")]
    assert all(t != design.threshold for t in moved)
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("arch", ["residual_mlp", "mlp"])
def test_a_held_run_goes_on_bit_for_bit(arch, tmp_path, monkeypatch):
    config = dataclasses.replace(SMALL, arch=arch, norm=None, branch_scale=None, engine=None, depth=3)
    whole = train(config, tmp_path / "whole", progress=False)
    from hush.train.record import Record

    save, calls = Record.save, []

    def killed(self, trainer):
        save(self, trainer)
        calls.append(1)
        if len(calls) == 2:
            raise SystemError("the power fails")

    monkeypatch.setattr(Record, "save", killed)
    with pytest.raises(SystemError, match="power"):
        train(config, tmp_path / "parts", progress=False)
    monkeypatch.setattr(Record, "save", save)
    parts = train(config, tmp_path / "parts", progress=False)
    assert parts.result.sparsity == whole.result.sparsity
    assert parts.result.test_loss == whole.result.test_loss
    one, other = (torch.load(os.fspath(r.directory / "checkpoint"))["state_dict"] for r in (parts, whole))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_what_has_no_threshold_cannot_be_held():
    with pytest.raises(ValueError, match="relu has no threshold to move"):
        TrainConfig(activation="relu", hold=True)


def _fit(task, callback, epochs, checkpoint_path=None):
    from lightning.pytorch import Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from tests.helpers import digits

    trainer = Trainer(
        max_epochs=epochs,
        logger=False,
        callbacks=[callback],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accumulate_grad_batches=2,
    )
    trainer.fit(task, DataLoader(TensorDataset(*digits(320)), batch_size=16), ckpt_path=checkpoint_path)
    return trainer


def _task():
    from lightning.pytorch import LightningModule

    class Task(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = hush.nn.mlp(64, 10, DESIGN)
            hush.init_(self.model, DESIGN, generator=torch.Generator().manual_seed(0))

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    return Task()


def test_the_callback_holds_and_resumes(tmp_path):
    whole, parts = _task(), _task()
    callback = hush.train.HoldSparsity(0.7, module="model")
    trainer = _fit(whole, callback, 4)
    assert callback.hold is None
    assert callback.report.window == 10
    assert [layer.moves for layer in callback.report.layers] == [40] * 3
    assert callback.report.layers[0].zeros == pytest.approx(0.7, abs=0.05)
    assert float(trainer.callback_metrics["zeros"]) == pytest.approx(0.7, abs=0.05)
    assert not whole.model[1]._forward_hooks

    class Save(hush.train.HoldSparsity):
        def on_train_epoch_end(self, trainer, pl_module):
            super().on_train_epoch_end(trainer, pl_module)
            trainer.save_checkpoint(tmp_path / "half.ckpt")

    _fit(parts, Save(0.7, module="model"), 2)
    again = _task()
    _fit(again, hush.train.HoldSparsity(0.7, module="model"), 4, tmp_path / "half.ckpt")
    for key, value in whole.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


def test_unknown_module():
    from lightning.pytorch import LightningModule

    with pytest.raises(ValueError, match="there is no submodule 'net' to hold"):
        hush.train.HoldSparsity(module="net")._held(LightningModule())
