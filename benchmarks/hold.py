"""What a hold keeps, and what it costs: residual networks on digits, thresholds fixed or held.

    python -m benchmarks.hold --out docs/results/hold

Blocks of two matrices on a normalised stream, AdamW with a cosine, the same recipe for every row. Printed, and written
as CSV and Markdown: test accuracy, the share of zeros on the test set (mean and lowest layer), the largest distance of
a layer from the target over the last tenth of the steps, units that no training image makes active.

    python -m benchmarks.hold --time

times a step without and with a hold, one after the other in turn, for this network and for an accelerated chain.
"""

import argparse
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hush
import hush.nn as hn
from benchmarks._csv_rows import text_of, write_csv
from benchmarks._origin import day_and_machine
from hush.data import load

_ROWS: dict[str, dict[str, Any] | None] = {
    "relu": None,
    "fixed": {},
    "held, gain 0.05, clip stays": {"gain": 0.05},
    "held, gain 0.05, clip follows": {"gain": 0.05, "clip": "follow"},
    "held, gain 0.005, clip stays": {"gain": 0.005},
    "held, gain 0.05, every 8": {"gain": 0.05, "every": 8},
    "held, gain 0.05, ramp from 0.5": {"gain": 0.05, "ramp": 0.5},
}
_COLUMNS = ("row", "seed", "accuracy", "loss", "zeros", "lowest", "worst_late", "dead")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sparsity", type=float, default=0.95)
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="Where to write .csv and .md, without the suffix.")
    parser.add_argument("--time", action="store_true", help="Time steps instead.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.time:
        _time(arguments)
        return
    rows = []
    for name, options in _ROWS.items():
        for seed in range(arguments.seeds):
            rows.append({"row": name, "seed": seed, **_train(arguments, options, seed)})
            print(" ".join(f"{key}={text_of(value)}" for key, value in rows[-1].items()), flush=True)
            if arguments.out:
                _write(arguments, rows)


def _train(arguments: argparse.Namespace, options: dict[str, Any] | None, seed: int) -> dict[str, float]:
    data = load("digits", variance=1.0, flat=True, seed=seed)
    size: dict[str, Any] = {"width": arguments.width, "depth": arguments.blocks, "hidden": arguments.width}
    kind = ("relu", None) if options is None else ("crelu", arguments.sparsity)
    design = hush.design(*kind, block="feedforward", norm="rms", **size)
    model = hn.residual_mlp(64, 10, design, hidden=arguments.width)
    hush.init_(model, design, data.train.images[:64], generator=torch.Generator().manual_seed(seed))
    images, labels = data.train.images, data.train.labels
    epoch = len(images) // arguments.batch
    steps = arguments.epochs * epoch
    hold = None
    if options:
        options = {"window": epoch, **options}
        start = options.pop("ramp", None)
        if start is not None:
            options["schedule"] = hush.ramp(start, steps=steps // 2)
        hold = hush.hold(model, arguments.sparsity, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.5 + 0.5 * math.cos(math.pi * k / steps))
    generator, late = torch.Generator().manual_seed(seed), []
    for step in range(steps):
        if step % epoch == 0:
            order = torch.randperm(len(images), generator=generator)
        part = order[step % epoch * arguments.batch :][: arguments.batch]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()
        schedule.step()
        if hold is not None and step >= 0.9 * steps:
            late.append([layer.zeros for layer in hold.report().layers])
    worst = math.nan
    if late:
        by_layer = zip(*late, strict=True)
        worst = max(abs(statistics.fmean(layer) - arguments.sparsity) for layer in by_layer)
    model.eval()
    with torch.no_grad():
        logits = model(data.test.images)
    zeros = hush.sparsity(model, data.test.images)
    return {
        "accuracy": float((logits.argmax(1) == data.test.labels).double().mean()),
        "loss": float(nn.functional.cross_entropy(logits, data.test.labels)),
        "zeros": zeros.mean,
        "lowest": min(zeros.layers.values()),
        "worst_late": worst,
        "dead": _dead_units(model, images),
    }


@torch.no_grad()
def _dead_units(model: nn.Module, images: torch.Tensor) -> float:
    """The share of hidden units that are active for none of the training images."""
    shares = []

    def look(_module: nn.Module, _arguments: Any, output: torch.Tensor) -> None:
        shares.append(float((output == 0).all(0).double().mean()))

    handles = [m.register_forward_hook(look) for m in model.modules() if isinstance(m, hn.CReLU | nn.ReLU)]
    model(images)
    for handle in handles:
        handle.remove()
    return statistics.fmean(shares)


def _time(arguments: argparse.Namespace, turns: int = 12) -> None:
    """The median over turns of held/fixed, each measured next to the other, since the machine may be shared."""
    design = hush.design("crelu", arguments.sparsity, width=300, depth=arguments.blocks)

    def residual() -> nn.Module:
        return hn.residual_mlp(300, 10, design, hidden=300)

    def chain() -> nn.Module:
        return hush.sparse.accelerate(hn.mlp(300, 10, design), adaptive=False)

    x, y = torch.randn(128, 300), torch.randint(0, 10, (128,))
    for name, make in (("residual", residual), ("accelerated chain", chain)):
        models = [make() for _ in range(4)]
        hush.hold(models[1], arguments.sparsity)
        hush.hold(models[2], arguments.sparsity, every=8)
        hush.hold(models[3], arguments.sparsity, revive="bias")
        optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-6) for model in models]
        times: list[list[float]] = [[] for _ in models]
        for _ in range(turns):
            for model, optimizer, seen in zip(models, optimizers, times, strict=True):
                began = time.perf_counter()
                for _ in range(8):
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
                seen.append((time.perf_counter() - began) / 8)
        every_step, every_eighth, reviving = ([h / f for h, f in zip(t, times[0], strict=True)] for t in times[1:])
        print(
            f"{name}: fixed {1e3 * statistics.median(times[0]):.1f} ms; held {statistics.median(every_step):.3f} "
            f"of that, measured at every eighth step {statistics.median(every_eighth):.3f}, with revived units "
            f"{statistics.median(reviving):.3f}.",
            flush=True,
        )


def _write(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    write_csv(arguments.out, _COLUMNS, rows)
    head = "| " + " | ".join(_COLUMNS[:1] + _COLUMNS[2:]) + " |\n|" + "---|" * (len(_COLUMNS) - 1)
    lines = []
    for name in dict.fromkeys(row["row"] for row in rows):
        mine = [row for row in rows if row["row"] == name]
        cells = [f"{statistics.fmean(row[c] for row in mine):.4f}".replace("nan", "") for c in _COLUMNS[2:]]
        lines.append(f"| {name} ({len(mine)} seeds) | " + " | ".join(cells) + " |")
    size = f"{arguments.blocks} blocks x {arguments.width}, {arguments.epochs} epochs, batch {arguments.batch}"
    title = f"# Held and fixed thresholds, digits, {size}, AdamW {arguments.lr:g}, target {arguments.sparsity:g}"
    origin = f"`python -m benchmarks.hold --out {arguments.out}`, {day_and_machine()}."
    arguments.out.with_suffix(".md").writetext_of("\n".join([title, "", origin, "", head, *lines]) + "\n")


if __name__ == "__main__":
    main()
