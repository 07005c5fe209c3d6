"""Run directories made by hand."""

import dataclasses
from pathlib import Path

from hush.train import Divergence, Result, TrainConfig
from hush.train.tables import write_table

DEPTH, EPOCHS = 4, 3


def make_run(root: Path, *, seed: int = 0, epochs: int = EPOCHS, finished: bool = True, **changes: object) -> Path:
    """A run directory with `epochs` of its epochs done; `changes` are those of its result."""
    config = TrainConfig(depth=DEPTH, width=20, v_prime=0.6, epochs=EPOCHS, seed=seed)
    path = root / config.name
    path.mkdir(parents=True)
    (path / "config.json").write_text(config.to_json())
    write_table(
        path, "metrics", [[e, e * 10.0, 2.0 - e, 1.9, 0.3 * e, 0.85, 0.01, e * 2.0] for e in range(1, epochs + 1)]
    )
    write_table(path, "losses", [[step, 2.3 - 0.01 * step] for step in range(0, 10 * epochs, 5)])
    steps = [*range(15), 20, 30] if epochs else []
    write_table(
        path,
        "layers",
        [
            [s, layer, 1.0, 0.8 + 0.01 * layer, 0.02, 0.0, 10.0**-layer, 0.1]
            for s in steps
            for layer in range(1, DEPTH + 1)
        ],
    )
    if finished:
        result = Result(
            outcome="trained",
            test_accuracy=0.912,
            test_loss=0.4,
            sparsity=0.845,
            train_loss=0.3,
            epochs=epochs,
            steps=30,
            seconds=12.0,
            diverged=None,
            gave_up=False,
            predicted="it should train.",
            predicted_trains=True,
            versions={"hush": "0"},
        )
        (path / "result.json").write_text(dataclasses.replace(result, **changes).to_json())  # type: ignore[arg-type]
    return path


def make_diverged(root: Path, reason: str = "the loss is not finite") -> Path:
    return make_run(
        root, seed=7, outcome="diverged", test_accuracy=0.1, diverged=Divergence(12, 3, reason), predicted_trains=False
    )
