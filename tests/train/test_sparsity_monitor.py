import pytest
import torch

import hush

pytest.importorskip("lightning")
# What Lightning and its dependencies warn about is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

DESIGN = hush.design("crelu", 0.8, v_prime=0.7, width=30, depth=3)


def test_callback_logs_every_nth_step(tmp_path) -> None:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.data import DataLoader, TensorDataset

    class Task(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = hush.nn.mlp(64, 10, DESIGN)
            hush.init_(self.model, DESIGN)

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    from tests.helpers import digits

    loader = DataLoader(TensorDataset(*digits(80)), batch_size=8)
    monitor = hush.train.SparsityMonitor(every=4, module="model")
    task = Task()
    logger = CSVLogger(tmp_path)
    trainer = Trainer(
        max_epochs=1,
        logger=logger,
        callbacks=[monitor],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
    )
    trainer.fit(task, loader)
    assert [snapshot.step for snapshot in monitor.history] == [0, 4, 8]
    assert all(layer.gradient > 0 for layer in monitor.history[0].layers)
    assert abs(float(trainer.callback_metrics["sparsity"]) - monitor.history[-1].sparsity) < 1e-5
    header = next(tmp_path.rglob("metrics.csv")).read_text().splitlines()[0]
    assert "q/phi1" in header
    assert "gradient/phi3" in header
    assert not task.model._forward_hooks


def test_unknown_module() -> None:
    from lightning.pytorch import LightningModule

    with pytest.raises(ValueError, match="there is no submodule 'net' to watch"):
        hush.train.SparsityMonitor(module="net")._watched(LightningModule())
