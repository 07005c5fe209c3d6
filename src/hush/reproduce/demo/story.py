"""The story from beginning to end: design, judge, train, time, draw, and hold every claim against what came of it."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hush.data import load
from hush.diagnose import diagnose_model
from hush.report import report
from hush.reproduce.demo.claims import Claim, claims_of
from hush.reproduce.demo.network_rows import NetworkRow, row_of
from hush.reproduce.demo.networks import DemoNetworks, demo_networks
from hush.reproduce.demo.step_times import StepTime, time_steps
from hush.reproduce.demo.training_figure import draw_training
from hush.train import Run, TrainConfig, finished_run
from hush.train.network import build

__all__ = ["Demo", "run_demo"]


@dataclass(frozen=True)
class Demo:
    """What the demo measured, and where its figure and its page with plots of every run are."""

    sparsity: float
    seeds: int
    networks: tuple[NetworkRow, ...]
    steps: tuple[StepTime, ...]
    claims: tuple[Claim, ...]
    figure: Path
    report: Path

    def to_json(self) -> str:
        values = asdict(self) | {"figure": str(self.figure), "report": str(self.report)}
        return json.dumps(_finite(values), indent=2, ensure_ascii=False, allow_nan=False)


def run_demo(
    root: str | Path = "runs/demo",
    *,
    seeds: int = 2,
    networks: DemoNetworks | None = None,
    say: Callable[[str], None] = print,
    progress: bool = True,
) -> Demo:
    """Judge and train four networks, time their steps, and hold the claims of hush against what came of it.

    Arguments:
        root: where the run directories, demo.png and report.html go; what is finished there is not trained again.
        seeds: how often each network is trained, with seeds from 0 on.
        networks: by default those of `demo_networks`.
        say: told what happens, line by line.
        progress: draw progress bars on stderr.

    Raises:
        ValueError: if there is no seed.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}.")
    networks = networks or demo_networks()
    runs: dict[str, list[Run]] = {}
    rows: list[NetworkRow] = []
    for number, (name, config) in enumerate(networks.items(), start=1):
        say(f"\n{number}/4  {_in_words(name, config)}")
        if config == replace(networks.held, hold=False):
            say("  the same weights as before, and no hold")
            diagnosed = rows[-1].diagnosed
        else:
            say(f"  designed   {config.design().verdict}")
            diagnosed = _diagnose(config)
            say(f"  diagnosed  {diagnosed}")
        runs[name] = [_train(config.with_seed(seed), root, say, progress) for seed in range(seeds)]
        rows.append(row_of(name, runs[name], diagnosed))
    say("\nTiming a step of each …")
    dense, held, *_ = runs.values()
    steps = time_steps(dense[0], held[0])
    sparsity = networks.held.design().sparsity
    images = len(load(networks.held.data, seed=networks.held.seed).test.labels)
    claims = claims_of(rows, steps, sparsity, images)
    figure = Path(root) / "demo.png"
    draw_training(runs, sparsity).savefig(figure, dpi=150)
    page = report([run for of_network in runs.values() for run in of_network], path=Path(root) / "report.html")
    return Demo(sparsity, seeds, tuple(rows), steps, claims, figure, page)


def _in_words(name: str, config: TrainConfig) -> str:
    shape = f"{config.depth} {'residual blocks' if config.architecture.residual else 'layers'} × {config.width}"
    zeros = f", {100 * config.sparsity:g} % zeros" if config.sparsity is not None else ""
    return f"{name}: {shape}{zeros}"


def _train(config: TrainConfig, root: str | Path, say: Callable[[str], None], progress: bool) -> Run:
    # Lightning is loaded where a network is trained: what was measured can be read and printed without it.
    from hush.train import train

    before = finished_run(config, root)
    run = before or train(config, root, progress=progress)
    assert run.result is not None
    read = f" (read: it was finished on {run.result.when})" if before else ""
    say(f"  {f'seed {config.seed}':<9}  {run.result}{read}")
    return run


def _diagnose(config: TrainConfig) -> str:
    """The verdict on the very weights that training will start from, those of the first seed."""
    split = load(config.data, variance=config.design().input_variance, seed=config.seed).train
    count = 2 * config.batch
    model = build(config, tuple(split.images.shape[1:]), int(split.labels.max()) + 1)
    return diagnose_model(model, split.images[:count], split.labels[:count], design=config.design()).verdict


def _finite(value: Any) -> Any:
    """The same with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
