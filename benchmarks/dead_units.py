"""What brings dead units back, and what that costs: residual networks on digits or MNIST, held at a high sparsity.

    python -m benchmarks.dead_units --out docs/results/dead_units

Blocks of two matrices, and of one, on a normalised stream; AdamW with a cosine, the same recipe for every row, a window
of an epoch. Printed, and written as CSV and Markdown: test accuracy and loss, loss of the last tenth of the steps, the
largest distance of a layer from its target over them, units that no training image makes active (mean over layers, and
the worst layer), and the time of a step beside that of the row without a remedy, the two in turn.
"""

import argparse
import math
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hush
import hush.nn as hn
from benchmarks._csv_rows import text_of, write_csv
from benchmarks._dead_unit_remedies import OTHER_REMEDIES
from benchmarks._origin import day_and_machine
from hush.data import load

_NONE = "nothing"
# What hush.hold does by itself; "ramp" is the sparsity that it begins at.
_OWN: dict[str, dict[str, Any]] = {
    _NONE: {},
    "the bias in front is moved": {"revive": "bias"},
    "a ramp from 0.5 over the first half": {"ramp": 0.5},
}
_COLUMNS = (
    "network",
    "sparsity",
    "remedy",
    "seed",
    "accuracy",
    "loss",
    "train_loss",
    "worst",
    "dead",
    "most_dead",
    "step",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--sparsity", type=float, nargs="*", default=[0.95, 0.98])
    parser.add_argument("--networks", nargs="*", choices=["two", "one"], default=["two", "one"])
    parser.add_argument("--remedies", nargs="*", help="Parts of the names of the remedies; all by default.")
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--window", type=int, help="Steps; an epoch by default.")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="Where to write .csv and .md, without the suffix.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for network in arguments.networks:
        for sparsity in arguments.sparsity:
            for seed in range(arguments.seeds):
                for remedy in _remedies(arguments, network):
                    found = _train(arguments, network, sparsity, remedy, seed)
                    rows.append({"network": network, "sparsity": sparsity, "remedy": remedy, "seed": seed, **found})
                    print(" ".join(f"{key}={text_of(value)}" for key, value in rows[-1].items()), flush=True)
                    if arguments.out:
                        _write(arguments, rows)


def _remedies(arguments: argparse.Namespace, network: str) -> list[str]:
    names = [*_OWN, *(name for name, (kind, _) in OTHER_REMEDIES.items() if network == "two" or not kind.needs_up)]
    if network == "one":
        names.remove("the bias in front is moved")  # there is none
    else:
        names.remove("a threshold of its own, lowered")  # the bias is that
    wanted = arguments.remedies
    return [name for name in names if not wanted or name == _NONE or any(part in name for part in wanted)]


class _Run:
    """One network in training, with a remedy."""

    def __init__(self, arguments: argparse.Namespace, network: str, sparsity: float, remedy: str, seed: int) -> None:
        self.arguments, self.sparsity = arguments, sparsity
        self.data = data = load(arguments.dataset, variance=1.0, flat=True, seed=seed)
        self.images, self.labels = data.train.images, data.train.labels
        hidden = arguments.width if network == "two" else None
        size: dict[str, Any] = {"width": arguments.width, "depth": arguments.blocks}
        size |= {"block": "residual"} if hidden is None else {"block": "feedforward", "hidden": hidden}
        design = hush.design("crelu", sparsity, norm="rms", **size)
        self.model = hn.residual_mlp(self.images.shape[1], 10, design, hidden=hidden)
        hush.init_(self.model, design, self.images[:64], generator=torch.Generator().manual_seed(seed))
        self.epoch = len(self.images) // arguments.batch
        self.steps = arguments.epochs * self.epoch
        options = {"window": arguments.window or self.epoch, **_OWN.get(remedy, {})}
        start = options.pop("ramp", None)
        if start is not None:
            options["schedule"] = hush.ramp(start, steps=self.steps // 2)
        self.hold = hush.hold(self.model, sparsity, **options)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=arguments.lr)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda k: 0.5 + 0.5 * math.cos(math.pi * k / self.steps)
        )
        self.remedy = None
        if remedy in OTHER_REMEDIES:
            kind, strength = OTHER_REMEDIES[remedy]
            self.remedy = kind(self.model, self.optimizer, options["window"], strength)
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0)

    def step(self, number: int) -> float:
        batch = self.arguments.batch
        if number % self.epoch == 0:
            self.order = torch.randperm(len(self.images), generator=self.generator)
        part = self.order[number % self.epoch * batch :][:batch]
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.images[part]), self.labels[part])
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        if self.remedy is not None:
            self.remedy.after_step()
        return loss.item()


def _train(arguments: argparse.Namespace, network: str, sparsity: float, remedy: str, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    run, beside = (_Run(arguments, network, sparsity, kind, seed) for kind in (remedy, _NONE))
    late, losses, ratios = [], [], []
    for number in range(run.steps):
        # Every eighth step the network without a remedy takes one too, for the time.
        began = time.perf_counter()
        loss = run.step(number)
        took = time.perf_counter() - began
        if number % 8 == 4:
            began = time.perf_counter()
            beside.step(number - number % 8 if number < run.epoch else number)
            ratios.append(took / (time.perf_counter() - began))
        if number >= 0.9 * run.steps:
            late.append([layer.zeros for layer in run.hold.report().layers])
            losses.append(loss)
    by_layer = [statistics.fmean(layer) for layer in zip(*late, strict=True)]
    run.model.eval()
    with torch.no_grad():
        logits = run.model(run.data.test.images)
    dead = _dead_units(run.model, run.images)
    return {
        "accuracy": float((logits.argmax(1) == run.data.test.labels).double().mean()),
        "loss": float(nn.functional.cross_entropy(logits, run.data.test.labels)),
        "train_loss": statistics.fmean(losses),
        "worst": max(abs(zeros - sparsity) for zeros in by_layer),
        "dead": statistics.fmean(dead),
        "most_dead": max(dead),
        "step": statistics.median(ratios),
    }


@torch.no_grad()
def _dead_units(model: nn.Module, images: Tensor) -> list[float]:
    """The share of units that are active for none of the images, layer by layer."""
    alive: dict[nn.Module, Tensor] = {}

    def look(module: nn.Module, _arguments: Any, output: Tensor) -> None:
        here = (output != 0).any(0)
        alive[module] = here | alive[module] if module in alive else here

    handles = [m.register_forward_hook(look) for m in model.modules() if isinstance(m, hn.CReLU)]
    for part in images.split(2048):
        model(part)
    for handle in handles:
        handle.remove()
    return [1.0 - float(units.double().mean()) for units in alive.values()]


def _write(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    write_csv(arguments.out, _COLUMNS, rows)
    shown = _COLUMNS[4:]
    lines = ["| matrices | target | remedy | " + " | ".join(shown) + " |", "|" + "---|" * (len(shown) + 3)]
    for key in dict.fromkeys((row["network"], row["sparsity"], row["remedy"]) for row in rows):
        mine = [row for row in rows if (row["network"], row["sparsity"], row["remedy"]) == key]
        cells = [f"{statistics.fmean(row[column] for row in mine):.4f}" for column in shown]
        lines.append(f"| {key[0]} | {key[1]:g} | {key[2]} ({len(mine)} seeds) | " + " | ".join(cells) + " |")
    size = f"{arguments.blocks} blocks x {arguments.width}, {arguments.epochs} epochs, batch {arguments.batch}"
    title = f"# Remedies for dead units, {arguments.dataset}, {size}, AdamW {arguments.lr:g}"
    origin = f"`python -m benchmarks.dead_units {shlex.join(sys.argv[1:])}`, {day_and_machine()}."
    arguments.out.with_suffix(".md").writetext_of("\n".join([title, "", origin, "", *lines]) + "\n")


if __name__ == "__main__":
    main()
