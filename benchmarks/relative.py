"""Thresholds relative to the layer's own size beside fixed and held ones: accuracy, zeros kept, whether q runs away.

    python -m benchmarks.relative --out docs/results/relative

On digits and the embedded text, the same recipe for every activation:

    long        30 layers × 128 at 85 % under SGD at a constant rate, 60 epochs: does q stay bounded?
    chain30     the same under AdamW, cosine, 20 epochs
    residual    30 blocks of two matrices × 128 on a normalised stream at 95 %, AdamW, cosine, 10 epochs
    gpt         3 layers × 96 at 95 %, AdamW, cosine, 150 steps of 16 × 64 bytes
    chain100    100 layers × 128 at 85 %, AdamW, cosine, 12 epochs

Each run reports its result on the test set, the share of zeros there (mean and lowest layer), and the largest q that
any layer had on a batch at any of 60 looks during training. A run whose loss is no longer finite has diverged. What the
CSV holds already is not run again; --only names some of the experiments.
"""

import argparse
import csv
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hush
import hush.nn as hn
from benchmarks._origin import day_and_machine
from hush.data import load
from hush.data.text import load_text, spread_windows, windows_at

_LOOKS = 60
_COLUMNS = (
    "experiment", "row", "rate", "seed", "accuracy", "loss", "zeros", "lowest", "largest_q", "final_q", "diverged"
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """An activation, and how it is trained."""

    name: str
    activation: str
    options: dict[str, Any]
    held: bool = False


_ROWS = (
    Row("crelu", "crelu", {}),
    Row("relative_relu", "relative_relu", {}),
    Row("relative_relu, s constant", "relative_relu", {"through_scale": False}),
    Row("relative_crelu m=1", "relative_crelu", {"clip": 1.0}),
    Row("relative_crelu m=1, s constant", "relative_crelu", {"clip": 1.0, "through_scale": False}),
    Row("relative_crelu m=2", "relative_crelu", {"clip": 2.0}),
)
_HELD = Row("crelu, held", "crelu", {}, held=True)


@dataclass(frozen=True)
class Experiment:
    """One network and its recipe."""

    sparsity: float
    rates: tuple[float, ...]
    seeds: int
    epochs: int
    build: Callable[[Row, "Experiment", int], tuple[nn.Module, "Task"]]
    optimizer: str = "adamw"
    cosine: bool = True
    depth: int = 30
    width: int = 128
    batch: int = 64
    rows: tuple[Row, ...] = _ROWS


@dataclass(frozen=True)
class Task:
    """Batches to learn, and the test."""

    steps: int
    batch: Callable[[int], tuple[Tensor, Tensor]]
    test: tuple[Tensor, Tensor]


def _digits(experiment: Experiment, seed: int) -> tuple[Task, Tensor]:
    data = load("digits", variance=1.0, flat=True, seed=seed)
    images, labels = data.train.images, data.train.labels
    epoch = len(images) // experiment.batch
    generator = torch.Generator().manual_seed(seed)
    orders: dict[int, Tensor] = {}

    def batch(step: int) -> tuple[Tensor, Tensor]:
        number, place = divmod(step, epoch)
        if number not in orders:
            orders.clear()
            orders[number] = torch.randperm(len(images), generator=generator)
        part = orders[number][place * experiment.batch :][: experiment.batch]
        return images[part], labels[part]

    return Task(experiment.epochs * epoch, batch, (data.test.images, data.test.labels)), images[:64]


def _chain(row: Row, experiment: Experiment, seed: int) -> tuple[nn.Module, Task]:
    task, _ = _digits(experiment, seed)
    size: dict[str, Any] = {"width": experiment.width, "depth": experiment.depth}
    design = hush.design(row.activation, experiment.sparsity, **size, **row.options)
    model = hn.mlp(64, 10, design)
    hush.init_(model, design, output="preserve", generator=torch.Generator().manual_seed(seed))
    return model, task


def _residual(row: Row, experiment: Experiment, seed: int) -> tuple[nn.Module, Task]:
    task, example = _digits(experiment, seed)
    size: dict[str, Any] = {"width": experiment.width, "depth": experiment.depth, "hidden": experiment.width}
    block: dict[str, Any] = {"block": "feedforward", "norm": "rms"}
    design = hush.design(row.activation, experiment.sparsity, **size, **block, **row.options)
    model = hn.residual_mlp(64, 10, design, hidden=experiment.width)
    hush.init_(model, design, example, generator=torch.Generator().manual_seed(seed))
    return model, task


def _gpt(row: Row, experiment: Experiment, seed: int) -> tuple[nn.Module, Task]:
    text, context = load_text(), 64
    size: dict[str, Any] = {"width": experiment.width, "depth": experiment.depth}
    design = hush.design(row.activation, experiment.sparsity, **size, block="feedforward", norm="rms", **row.options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = hn.gpt(design, layers=experiment.depth, width=experiment.width, context=context)
    generator = torch.Generator().manual_seed(seed)

    def batch(_step: int) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text.train) - context - 1, (experiment.batch,), generator=generator)
        part = windows_at(text.train, starts, context)
        return part.images, part.labels

    hush.init_(model, design, batch(0)[0], generator=torch.Generator().manual_seed(seed))
    held_out = spread_windows(text.validation, context, 256)
    return model, Task(experiment.epochs, batch, (held_out.images, held_out.labels))


_EXPERIMENTS = {
    "long": Experiment(0.85, (1e-2, 1e-1), 2, 60, _chain, optimizer="sgd", cosine=False),
    "chain30": Experiment(0.85, (1e-3,), 2, 20, _chain),
    "residual": Experiment(0.95, (1e-3,), 2, 10, _residual, rows=(*_ROWS, _HELD)),
    "gpt": Experiment(0.95, (2e-3,), 2, 150, _gpt, depth=3, width=96, batch=16, rows=(*_ROWS, _HELD)),
    "chain100": Experiment(0.85, (3e-4,), 2, 12, _chain, depth=100),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=tuple(_EXPERIMENTS), default=tuple(_EXPERIMENTS))
    parser.add_argument("--out", type=Path, help="Where to write .csv and .md, without the suffix.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = _read(arguments.out)
    done = {(row["experiment"], row["row"], float(row["rate"]), int(row["seed"])) for row in rows}
    for name in arguments.only:
        experiment = _EXPERIMENTS[name]
        for seed in range(experiment.seeds):
            for row in experiment.rows:
                for rate in experiment.rates:
                    if (name, row.name, rate, seed) in done:
                        continue
                    found = {"experiment": name, "row": row.name, "rate": rate, "seed": seed}
                    rows.append({**found, **_train(row, experiment, rate, seed)})
                    print(" ".join(f"{key}={_text(value)}" for key, value in rows[-1].items()), flush=True)
                    if arguments.out:
                        _write(arguments.out, rows)
    if arguments.out:
        _write(arguments.out, rows)


def _train(row: Row, experiment: Experiment, rate: float, seed: int) -> dict[str, float | int]:
    model, task = experiment.build(row, experiment, seed)
    if row.held:
        hush.hold(model, experiment.sparsity)
    kind = torch.optim.SGD if experiment.optimizer == "sgd" else torch.optim.AdamW
    optimizer = kind(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: 0.5 + 0.5 * math.cos(math.pi * k / task.steps) if experiment.cosine else 1.0
    )
    largest, final, diverged = 0.0, math.nan, False
    every = max(1, task.steps // _LOOKS)
    for step in range(task.steps):
        x, y = task.batch(step)
        if step % every == 0:
            final = _largest_q(model, x)
            largest = max(largest, final) if math.isfinite(final) else math.inf
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        if not math.isfinite(loss.item()):
            diverged = True
            break
        loss.backward()
        optimizer.step()
        schedule.step()
    x, y = task.test
    model.eval()
    with torch.no_grad():
        logits = model(x)
    zeros = hush.sparsity(model, x)
    return {
        "accuracy": float((logits.argmax(-1) == y).double().mean()),
        "loss": float(nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())),
        "zeros": zeros.mean,
        "lowest": min(zeros.layers.values()),
        "largest_q": largest,
        "final_q": final,
        "diverged": int(diverged),
    }


@torch.no_grad()
def _largest_q(model: nn.Module, x: Tensor) -> float:
    """The largest mean square, over the batch, of what an activation reads."""
    found: list[float] = []
    kinds = (hn.CReLU, hn.RelativeReLU, hn.RelativeCReLU)
    handles = [
        module.register_forward_pre_hook(lambda _, given: found.append(float(given[0].double().square().mean())))
        for module in model.modules()
        if isinstance(module, kinds)
    ]
    model.eval()
    model(x)
    model.train()
    for handle in handles:
        handle.remove()
    return max(found) if all(map(math.isfinite, found)) else math.inf


def _read(out: Path | None) -> list[dict[str, Any]]:
    file = out and out.with_suffix(".csv")
    if file is None or not file.exists():
        return []
    with file.open(newline="") as source:
        return [dict(row) for row in csv.DictReader(source)]


def _write(out: Path, rows: list[dict[str, Any]]) -> None:
    with out.with_suffix(".csv").open("w", newline="") as target:
        writer = csv.DictWriter(target, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _text(value) for key, value in row.items()} for row in rows)
    out.with_suffix(".md").write_text(_page(rows))


def _page(rows: list[dict[str, Any]]) -> str:
    text = [
        "# Relative thresholds beside fixed ones",
        "",
        f"`python -m benchmarks.relative --out docs/results/relative`, {day_and_machine()}.",
        "",
        "Means over the seeds; the CSV has every run. Loss and accuracy on the test set; q is the largest mean square",
        "that the pre-activations of any layer had at 60 looks in training, and at the last, of the worst seed; m",
        "in units of rms(h), and “s constant” is `through_scale=False`.",
        "",
        "```text",
        *(line for line in (__doc__ or "").splitlines() if line.startswith("    ") and "python" not in line),
        "```",
    ]
    for name, experiment in _EXPERIMENTS.items():
        own = [row for row in rows if row["experiment"] == name]
        if not own:
            continue
        text += ["", f"## {name}, {experiment.sparsity:.0%} zeros, {experiment.seeds} seeds", ""]
        text += ["| activation | rate | loss | accuracy | zeros | lowest layer | largest q | last q | diverged |"]
        text += ["|---|---|---|---|---|---|---|---|---|"]
        for row in experiment.rows:
            for rate in experiment.rates:
                seeds = [each for each in own if each["row"] == row.name and float(each["rate"]) == rate]
                if seeds:
                    text.append(_line(row, rate, seeds))
    return "\n".join([*text, ""])


def _line(row: Row, rate: float, seeds: list[dict[str, Any]]) -> str:
    def values(key: str) -> list[float]:
        return [float(each[key]) for each in seeds]

    spread = max(values("loss")) - min(values("loss"))
    cells: Iterable[str] = (
        row.name,
        f"{rate:g}",
        f"{statistics.fmean(values('loss')):.3f} (range {spread:.3f})",
        f"{statistics.fmean(values('accuracy')):.3f}",
        f"{statistics.fmean(values('zeros')):.3f}",
        f"{min(values('lowest')):.3f}",
        f"{max(values('largest_q')):.3g}",
        f"{max(values('final_q')):.3g}",
        f"{sum(map(int, values('diverged')))} of {len(seeds)}",
    )
    return f"| {' | '.join(cells)} |"


def _text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
