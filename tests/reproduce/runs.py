"""Finished runs that were never trained, for tests of what is read from them."""

import dataclasses
import json
from pathlib import Path

from hush.train import Result, TrainConfig

METRICS = "epoch,step,train_loss,validation_loss,validation_accuracy,sparsity,learning_rate,seconds\n"


def write_run(
    root: Path, config: TrainConfig, accuracy: float, sparsity: float, best: float | None = None, loss: float = 1.0
) -> Path:
    """A run directory that ended with these figures after two epochs."""
    directory = root / config.name
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(config.to_json())
    rows = f"1,10,2.0,2.0,{best or accuracy},{sparsity},0.01,1.5\n2,20,1.5,1.5,{accuracy},{sparsity},0.01,3.0\n"
    (directory / "metrics.csv").write_text(METRICS + rows)
    (directory / "losses.csv").write_text("step,loss\n0,2.4\n10,2.0\n20,1.5\n")
    result = Result(
        outcome="trained" if accuracy >= 0.5 else "failed",
        test_accuracy=accuracy,
        test_loss=loss,
        sparsity=sparsity,
        train_loss=1.5,
        epochs=2,
        steps=20,
        seconds=3.0,
        diverged=None,
        gave_up=False,
        predicted="it should train.",
        predicted_trains=True,
        versions={"hush": "0.1.0", "torch": "2.13.0"},
    )
    (directory / "result.json").write_text(json.dumps(dataclasses.asdict(result)))
    return directory
