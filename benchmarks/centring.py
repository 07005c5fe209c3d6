"""Deep sparse chains on MNIST with and without centred gradients and a linear or even start: epochs to 0.5 and to 0.9.

    python -m benchmarks.centring --out docs/results/centring                  every row, seed 0; an hour on two cores
    python -m benchmarks.centring --out docs/results/centring --seeds 3        goes on where it stopped

A chain of `--depth` layers of 300 units, AdamW at one rate for all ways, batch 128, a warm-up over a tenth of the
steps and half a cosine, images standardised one by one, the sparse engine with its fused update. The ways:

    plain      as hush.init_ draws it, torch's gradients
    centred    ∂W − ∂b ⊗ ā                               hush.center_gradients(model, keep_mean=False)
    kept       and b ← b − ΔW ā behind each step         hush.center_gradients(model)
    linear     kept, and a linear start                  hush.nn.linear_start_(model, design, images)
    even       kept, and an even start                   hush.nn.linear_start_(model, design, images, even=True)
    uncentred  an even start, torch's gradients

Accuracy is measured on 2,000 images held out, every `--look` steps; the last one is that of the test set.
"""

import argparse
import csv
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hush
from benchmarks._origin import day_and_machine
from hush.data import Split, Splits, load

_WAYS = ("plain", "centred", "kept", "linear", "even", "uncentred")
_EVEN = ("even", "uncentred")
_ROWS = (("crelu", 0.85, 0.7), ("cst", 0.85, 0.7), ("crelu", 0.85, 0.5), ("relative_relu", 0.85, None))
# Of the CSV; those with a heading are in the Markdown table too.
_COLUMNS = {
    "activation": "φ",
    "sparsity": "s",
    "v_prime": "V′",
    "depth": "layers",
    "way": "way",
    "seed": "seed",
    "lr": "lr",
    "epochs": "epochs",
    "to_half": "to 0.5",
    "to_nine_tenths": "to 0.9",
    "accuracy": "test accuracy",
    "zeros": "zeros",
    "loss": "",
    "seconds": "seconds",
    "ran": "",
}
_WIDTH, _BATCH, _HELD_OUT = 300, 128, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, action="append", help="By default 30 and 100.")
    parser.add_argument("--row", type=int, action="append", help=f"Which of {_ROWS}, from 0; by default all.")
    parser.add_argument("--way", action="append", choices=_WAYS)
    parser.add_argument("--epochs", type=float, default=6.0)
    parser.add_argument("--rate", type=float, default=1e-2, help="The learning rate is this / depth.")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=1e-3, help="Of the linear start.")
    parser.add_argument("--look", type=int, default=50, help="Steps between two looks at the accuracy.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="Where to write .csv and .md, without the suffix.")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    rows = _read(asked.out.with_suffix(".csv"))
    for run in _runs(asked):
        if any(all(row[key] == str(value) for key, value in run.items()) for row in rows):
            continue
        found = _train(run, asked)
        rows.append({key: str(value) for key, value in {**run, **found, "ran": day_and_machine()}.items()})
        print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
        _write(asked, rows)
    _write(asked, rows)


def _runs(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The first seed of everything comes first."""
    for seed in range(asked.seeds):
        for depth in asked.depth or (100, 30):
            for row in asked.row or range(len(_ROWS)):
                activation, sparsity, v_prime = _ROWS[row]
                for way in asked.way or _WAYS:
                    yield {
                        "activation": activation,
                        "sparsity": sparsity,
                        "v_prime": v_prime,
                        "depth": depth,
                        "way": way,
                        "seed": seed,
                        "lr": float(f"{min(3e-4, asked.rate / depth):.3g}"),
                        "epochs": asked.epochs,
                    }


def _train(run: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    depth, seed, way = run["depth"], run["seed"], run["way"]
    design = hush.design(run["activation"], run["sparsity"], v_prime=run["v_prime"], width=_WIDTH, depth=depth)
    data = load("mnist", variance=design.input_variance, per_image=True, flat=True, seed=seed)
    model = hush.nn.mlp(data.train.images.shape[1], data.classes, design)
    hush.init_(model, design, generator=torch.Generator().manual_seed(seed))
    if way in ("linear", *_EVEN):
        generator, images = torch.Generator().manual_seed(seed), data.train.images[:2000]
        hush.nn.linear_start_(model, design, images, share=asked.share, even=way in _EVEN, generator=generator)
    if way not in ("plain", "uncentred"):
        hush.center_gradients(model, keep_mean=way != "centred")
    optimizer = torch.optim.AdamW(model.parameters(), lr=run["lr"], weight_decay=0.0)
    hush.sparse.accelerate(model, optimizer=optimizer, adaptive=False)
    began = time.perf_counter()
    reached, loss = _learn(model, optimizer, data, run, asked.look)
    seconds = time.perf_counter() - began
    accuracy = math.nan if not math.isfinite(loss) else _accuracy(model, data.test)
    return {
        "to_half": reached.get(0.5, ""),
        "to_nine_tenths": reached.get(0.9, ""),
        "accuracy": round(accuracy, 4),
        "zeros": round(float(hush.sparsity(model, data.test.images[:_HELD_OUT]).mean), 4),
        "loss": round(loss, 4),
        "seconds": round(seconds),
    }


def _learn(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Splits, run: dict[str, Any], look: int
) -> tuple[dict[float, float], float]:
    """The epochs after which an accuracy was first seen, and the mean loss of the last steps."""
    images, labels = data.train.images, data.train.labels
    epoch = math.ceil(len(images) / _BATCH)
    steps = round(run["epochs"] * epoch)
    warmup = max(1, steps // 10)
    held_out = Split(data.validation.images[:_HELD_OUT], data.validation.labels[:_HELD_OUT])
    generator = torch.Generator().manual_seed(run["seed"])
    reached: dict[float, float] = {}
    losses: list[float] = []
    for step in range(steps):
        if step % epoch == 0:
            order = torch.randperm(len(images), generator=generator).split(_BATCH)
        done = (step - warmup) / max(1, steps - warmup)
        share = (step + 1) / warmup if step < warmup else 0.5 + 0.5 * math.cos(math.pi * done)
        for group in optimizer.param_groups:
            group["lr"] = share * run["lr"]
        part = order[step % epoch]
        loss = nn.functional.cross_entropy(model(images[part]), labels[part])
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            return reached, math.nan
        hush.sparse.step(model, loss)
        if (step + 1) % look == 0 or step + 1 == steps:
            seen = _accuracy(model, held_out)
            for mark in (0.5, 0.9):
                if seen >= mark:
                    reached.setdefault(mark, round((step + 1) / epoch, 2))
    return reached, sum(losses[-look:]) / len(losses[-look:])


@torch.no_grad()
def _accuracy(model: nn.Module, split: Split) -> float:
    model.eval()
    right: list[Tensor] = [
        model(x).argmax(1) == y for x, y in zip(split.images.split(500), split.labels.split(500), strict=True)
    ]
    model.train()
    return float(torch.cat(right).double().mean())


def _read(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def _write(asked: argparse.Namespace, rows: list[dict[str, str]]) -> None:
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with asked.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    headings = {key: heading for key, heading in _COLUMNS.items() if heading}
    table = ["| " + " | ".join(headings.values()) + " |", "| --- " * len(headings) + "|"]
    for row in sorted(rows, key=lambda r: [r[key] for key in ("depth", "activation", "v_prime", "way", "seed")]):
        table.append("| " + " | ".join(row[key] or "–" for key in headings) + " |")
    pieces = [
        "# Centred gradients and starts",
        f"`python -m benchmarks.centring --out {asked.out}`",
        (__doc__ or "").split("\n\n", 2)[2].rstrip(),
        "Epochs are those after which an accuracy was first seen; – means never. Seconds are those of a machine that "
        "may have done other work at the same time.",
        "\n".join(table),
        "Run on:",
        "\n".join(f"- {line}" for line in sorted({row["ran"] for row in rows})),
    ]
    asked.out.with_suffix(".md").write_text("\n\n".join(pieces) + "\n")


if __name__ == "__main__":
    main()
