"""The paper's claim in three minutes on the embedded digits: three deep networks at the same high sparsity.

Shifted ReLU and soft threshold are on the Edge of Chaos and explode; the designed CReLU is there too, with a stable q*,
and trains. Each is judged before it is trained: by its design, and by a diagnosis of its actual weights.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from hush import sparse
from hush.bench.measurement import Setting
from hush.bench.timing import Timed, Work, compare
from hush.data import load
from hush.diagnose import diagnose_model
from hush.report import report
from hush.train import Run, TrainConfig, train
from hush.train.network import build

__all__ = ["CONFIGS", "Demo", "DemoRow", "run_demo"]

_SAME = {"data": "digits", "depth": 30, "width": 300, "sparsity": 0.85}
_SAME |= {"lr": 1e-2, "schedule": "constant", "warmup": 0, "batch": 32, "watch": 250}
CONFIGS = (
    TrainConfig(activation="shifted_relu", epochs=20, give_up=10, **_SAME),  # type: ignore[arg-type]
    TrainConfig(activation="soft_threshold", epochs=20, give_up=10, **_SAME),  # type: ignore[arg-type]
    TrainConfig(activation="crelu", v_prime=0.7, epochs=80, **_SAME),  # type: ignore[arg-type]
)
_TURNS = 9


@dataclass(frozen=True)
class DemoRow:
    """One network: what was said before training, and what came of it."""

    network: str
    predicted_trains: bool
    predicted: str
    diagnosed: str
    outcome: str
    test_accuracy: float
    sparsity: float
    seconds: float
    dense_ms: float
    accelerated_ms: float


@dataclass(frozen=True)
class Demo:
    """The table, and where the page with the plots is."""

    rows: tuple[DemoRow, ...]
    report: Path

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "report": str(self.report)}, indent=2, ensure_ascii=False)


def run_demo(root: str | Path = "runs/demo", *, say: Callable[[str], None] = print, progress: bool = True) -> Demo:
    """Design, initialise, diagnose and train the three networks, time a step of each, and write the report.

    Arguments:
        root: where the run directories and report.html go; what is finished there is not trained again.
        say: told what happens, line by line.
    """
    rows, runs = [], []
    for number, config in enumerate(CONFIGS, start=1):
        name = f"{config.activation}, {config.depth} layers × {config.width}, s = {config.sparsity:g}"
        say(f"\n{number}/{len(CONFIGS)}  {name}")
        say(f"  designed   {config.design().verdict}")
        diagnosed = _diagnose(config)
        say(f"  diagnosed  {diagnosed}")
        run = train(config, root, progress=progress, tensorboard=False)
        assert run.result is not None
        say(f"  trained    {run.result}")
        rows.append(_row(config, run, diagnosed, *_time_steps(config)))
        runs.append(run)
    path = report(runs, path=Path(root) / "report.html")
    return Demo(tuple(rows), path)


def _row(config: TrainConfig, run: Run, diagnosed: str, dense_ms: float, accelerated_ms: float) -> DemoRow:
    result = run.result
    assert result is not None
    return DemoRow(
        config.activation,
        result.predicted_trains,
        result.predicted,
        diagnosed,
        result.outcome,
        result.test_accuracy,
        result.sparsity,
        result.seconds,
        dense_ms,
        accelerated_ms,
    )


def _batch(config: TrainConfig) -> tuple[Tensor, Tensor]:
    split = load(config.data, variance=config.design().input_variance, seed=config.seed).train
    return split.images[: 2 * config.batch], split.labels[: 2 * config.batch]


def _diagnose(config: TrainConfig) -> str:
    """The verdict on the very weights that training will start from."""
    x, y = _batch(config)
    return diagnose_model(build(config, (1, 8, 8), 10), x, y, design=config.design()).verdict


def _time_steps(config: TrainConfig) -> tuple[float, float]:
    """ms of an SGD step at initialisation, dense and accelerated (median, the two in turns)."""
    x, y = _batch(config)
    x, y = x[: config.batch], y[: config.batch]

    def step(fast: bool) -> Work:
        model = build(config, (1, 8, 8), 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)  # the network must stay where it is while we look
        if fast:
            sparse.accelerate(model, optimizer=optimizer)

        def work(_: int) -> None:
            loss = nn.functional.cross_entropy(model(x), y)
            if fast:
                sparse.step(model, loss)
            else:
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()

        return work

    sparsity = config.design().sparsity
    setting = Setting("step", config.width, config.depth, config.batch, sparsity, torch.get_num_threads())
    works = {"dense": Timed("f32", step(False)), "hush_fused": Timed("f32", step(True))}
    dense, fast = compare(setting, works, _TURNS, 0.0)
    return dense.median_ms, fast.median_ms
