"""What a hold costs and what it keeps: residual networks on digits, thresholds fixed or held.

    python -m benchmarks.hold --out docs/results/hold

Blocks of two matrices on a normalised stream, AdamW with a cosine, the same recipe for every row. Printed, and written
as CSV and Markdown: test accuracy, the share of zeros on the test set (mean and lowest layer), the largest distance of
a layer from the target over the last tenth of the steps, dead units of the last epoch, milliseconds of a step.
"""

import argparse
import csv
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hush
import hush.nn as hn
from hush.data import load

_ROWS: dict[str, dict[str, Any] | None] = {
    "relu": None,
    "fixed": {},
    "held, gain 0.05, clip stays": {"gain": 0.05},
    "held, gain 0.05, clip follows": {"gain": 0.05, "clip": "follow"},
    "held, gain 0.005, clip stays": {"gain": 0.005},
    "held, gain 0.2, clip stays": {"gain": 0.2},
    "held, gain 0.05, every 8": {"gain": 0.05, "every": 8},
    "held, gain 0.05, ramp from 0.5": {"gain": 0.05, "ramp": 0.5},
}
_COLUMNS = ("row", "seed", "accuracy", "loss", "zeros", "lowest", "worst_late", "dead", "step_ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sparsity", type=float, default=0.95)
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="Where to write .csv and .md, without the suffix.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, options in _ROWS.items():
        for seed in range(arguments.seeds):
            rows.append({"row": name, "seed": seed, **_train(arguments, options, seed)})
            print(" ".join(f"{key}={_text(value)}" for key, value in rows[-1].items()), flush=True)
            if arguments.out:
                _write(arguments, rows)


def _train(arguments: argparse.Namespace, options: dict[str, Any] | None, seed: int) -> dict[str, float]:
    data = load("digits", variance=1.0, flat=True, seed=seed)
    design = hush.design("crelu", arguments.sparsity, width=arguments.width, depth=arguments.blocks)
    model = hn.residual_mlp(
        64, 10, nn.ReLU if options is None else design, blocks=arguments.blocks, width=arguments.width,
        hidden=arguments.width,
    )  # fmt: skip
    hn.draw_by_role_(model, generator=torch.Generator().manual_seed(seed))
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
    generator, times, late = torch.Generator().manual_seed(seed), [], []
    for step in range(steps):
        if step % epoch == 0:
            order = torch.randperm(len(images), generator=generator)
        part = order[step % epoch * arguments.batch :][: arguments.batch]
        began = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()
        schedule.step()
        times.append(time.perf_counter() - began)
        if hold is not None and step >= 0.9 * steps:
            late.append([layer.zeros for layer in hold.report().layers])
    worst = math.nan
    if late:
        by_layer = zip(*late, strict=True)
        worst = max(abs(statistics.fmean(layer) - arguments.sparsity) for layer in by_layer)
    dead = math.nan
    if hold is not None:
        known = [layer.dead for layer in hold.report().layers if layer.dead is not None]
        dead = statistics.fmean(known) if known else math.nan
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
        "dead": dead,
        "step_ms": 1e3 * statistics.median(times),
    }


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4f}"
    return str(value)


def _write(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows([{key: _text(value) for key, value in row.items()} for row in rows])
    head = "| " + " | ".join(_COLUMNS[:1] + _COLUMNS[2:]) + " |\n|" + "---|" * (len(_COLUMNS) - 1)
    lines = []
    for name in dict.fromkeys(row["row"] for row in rows):
        mine = [row for row in rows if row["row"] == name]
        cells = [f"{statistics.fmean(row[c] for row in mine):.4f}".replace("nan", "") for c in _COLUMNS[2:]]
        lines.append(f"| {name} ({len(mine)} seeds) | " + " | ".join(cells) + " |")
    size = f"{arguments.blocks} blocks x {arguments.width}, {arguments.epochs} epochs, batch {arguments.batch}"
    title = f"# Held and fixed thresholds, digits, {size}, AdamW {arguments.lr:g}, target {arguments.sparsity:g}"
    arguments.out.with_suffix(".md").write_text("\n".join([title, "", head, *lines]) + "\n")


if __name__ == "__main__":
    main()
