"""The runs of `sparse_networks.py` as a table, a list of all runs and a figure."""

import csv
import json
import math
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks._sparse_networks import NETWORKS
from hush._style import BLACK, BLUE, GREEN, ORANGE, RED, SKY, panels, style

__all__ = ["read_runs", "write_figure", "write_table"]

Run = dict[str, Any]
# What a network at 95 % may lose beside ReLU: in points of accuracy, or in nats.
_AIMS = {"cifar_resnet": 0.010, "cifar_wide": 0.010, "text_gpt": 0.02}
_AIM_OF_MLP, _AIM_OF_ZEROS = 0.005, 0.01
_COLUMNS = (
    "network",
    "method",
    "activation",
    "sparsity",
    "seed",
    "accuracy",
    "loss",
    "train_loss",
    "zeros",
    "lowest",
    "farthest",
    "dead",
)
_HEADS = (
    "activation",
    "seeds",
    "accuracy",
    "loss",
    "training loss",
    "beside ReLU",
    "zeros",
    "lowest layer",
    "farthest layer",
    "dead units",
)
# Shares of zeros that others report for networks trained with them, each on its own task; no losses to compare.
_PUBLISHED = {
    "cliff of 79 configurations": 0.70,
    "the paper": 0.85,
    "ProSparse": 0.89,
    "TurboSparse, Dent & Tanner": 0.90,
    "Spark Transformer": 0.92,
}


_MARKS = {
    ("held", "crelu"): (BLUE, "o"),
    ("held", "shifted_relu"): (SKY, "o"),
    ("large", "crelu"): (RED, "D"),
    ("large", "shifted_relu"): (ORANGE, "D"),
    ("relative", "relative_relu"): (GREEN, "s"),
    ("fixed", "shifted_relu"): (BLACK, "^"),
}
_METHODS = {"held": "held", "large": "held, q* = 100", "fixed": "fixed", "relative": "relative"}


def read_runs(folder: Path) -> list[Run]:
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for run in runs:
        zeros = list(run["zeros"].values())
        run["lowest"] = min(zeros)
        run["farthest"] = max(abs(share - run["sparsity"]) for share in zeros) if run["sparsity"] else None
        run["zeros"], run["dead"] = statistics.fmean(zeros), statistics.fmean(run["dead"].values())
    return runs


def _grouped(runs: Sequence[Run]) -> dict[str, dict[tuple[str, str, float], list[Run]]]:
    groups: dict[str, dict[tuple[str, str, float], list[Run]]] = {name: defaultdict(list) for name in NETWORKS}
    for run in runs:
        groups[run["network"]][run["method"], run["activation"], run["sparsity"] or 0.0].append(run)
    return {name: dict(sorted(found.items())) for name, found in groups.items() if found}


def write_table(runs: Sequence[Run], path: Path) -> str:
    """Markdown and CSV beside each other; the Markdown."""
    with path.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        writer.writerows([_cell(run[column]) for column in _COLUMNS] for run in runs)
    origins = "; ".join(sorted({run["origin"] for run in runs}))
    # A run that came apart has fewer steps than its recipe, never more.
    longer = sorted({run["steps"] for run in runs if run["steps"] > NETWORKS[run["network"]].steps})
    option = "".join(f" --steps {steps}" for steps in longer)
    lines = [
        "# From dense to 98 % zeros\n",
        f"`python -m benchmarks.sparse_networks{option}` trains, `--table {path}` writes this page. The weights "
        "are drawn by `hush.init_`; autocast to bfloat16; the rate rises over a tenth of the steps and falls "
        "by a cosine. Scored on the whole test set (1,024 windows of the text) in float32; a dead unit is never "
        "active there; the training loss is that of the last steps. What a step takes is "
        "[measured by itself](sparse_networks_time.md). One seed unless the table says more; what is missing is "
        "trained by the same command. "
        f"Runs: {origins}.\n",
    ]
    published = "; ".join(f"{name} {share:g}" for name, share in _PUBLISHED.items())
    lines.append(
        f"![Loss against zeros]({path.name}.png)\n\nLoss on the test set less that of ReLU with the same seeds. The "
        f"ticks on the axes are shares of zeros that others report, each on its own task: {published}.\n"
    )
    for name, groups in _grouped(runs).items():
        lines += _section(name, groups)
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")
    return "\n".join(lines)


def _cell(value: Any) -> Any:
    return f"{value:.5f}" if isinstance(value, float) and value not in (0.8, 0.9, 0.95, 0.98) else value


def _section(name: str, groups: dict[tuple[str, str, float], list[Run]]) -> list[str]:
    network = NETWORKS[name]
    optimizer = "SGD with momentum" if network.sgd else "AdamW"
    # A run that came apart has fewer.
    steps = max(run["steps"] for runs in groups.values() for run in runs)
    lines = [
        f"## {network.title}\n",
        f"{steps} steps of {network.batch}, {optimizer} at {network.rate:g}.\n",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "---|" * len(_HEADS),
    ]
    relu = groups.get(("dense", "relu", 0.0))
    for (method, activation, sparsity), runs in groups.items():
        label = activation if method == "dense" else f"{activation} {sparsity:g}, {_METHODS[method]}"
        cells = [label, str(len(runs)), _spread(runs, "accuracy"), _spread(runs, "loss")]
        cells += [
            f"{_mean(runs, 'train_loss'):.4f}",
            _beside(name, runs, relu),
            f"{_mean(runs, 'zeros'):.4f}",
            f"{min(r['lowest'] for r in runs):.4f}",
        ]
        cells += ["" if not sparsity else f"{max(r['farthest'] for r in runs):.4f}", f"{_mean(runs, 'dead'):.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for method in ("held", "large"):
        for (kind, activation, sparsity), runs in groups.items():
            if kind == method and sparsity == 0.95:
                lines += _judgement(name, f"{activation} {_METHODS[method]}", runs, relu)
    return lines


def _judgement(name: str, label: str, held: list[Run] | None, relu: list[Run] | None) -> list[str]:
    if not held or not relu:
        return []
    lost, aim = _lost(name, held, relu), _AIMS.get(name, _AIM_OF_MLP)
    far = max(run["farthest"] for run in held)
    in_nats = name == "text_gpt"
    side = ("above" if lost > 0 else "below") if in_nats else ("below" if lost > 0 else "above")
    amount = f"{abs(lost):.3f} nats" if in_nats else f"{100 * abs(lost):.2f} points"
    allowed = f"{aim:g} nats" if in_nats else f"{100 * aim:g} points"
    verdict = "met" if lost <= aim else "missed"
    text = (
        f"At 95 %, {label}: {amount} {side} ReLU, where at most {allowed} were to be lost: {verdict}. "
        f"Farthest layer {far:.4f} from its target, at most {_AIM_OF_ZEROS} aimed at: "
        f"{'met' if far <= _AIM_OF_ZEROS else 'missed'}."
    )
    return [text, ""]


def _lost(name: str, runs: list[Run], relu: list[Run]) -> float:
    """Accuracy that is gone, or nats that have come, over the seeds that both have; above 0 is worse."""
    seeds = {run["seed"] for run in runs} & {run["seed"] for run in relu}
    runs, relu = ([run for run in each if run["seed"] in seeds] for each in (runs, relu))
    if name == "text_gpt":
        return _mean(runs, "loss") - _mean(relu, "loss")
    return _mean(relu, "accuracy") - _mean(runs, "accuracy")


def _added(runs: list[Run], relu: list[Run]) -> float:
    """The loss less ReLU's, over the seeds that both have."""
    of_relu = {run["seed"]: run["loss"] for run in relu}
    return statistics.fmean(run["loss"] - of_relu[run["seed"]] for run in runs if run["seed"] in of_relu)


def _beside(name: str, runs: list[Run], relu: list[Run] | None) -> str:
    if relu is None or runs is relu:
        return ""
    lost = _lost(name, runs, relu)
    # + 0.0 makes 0 of −0.
    return f"{round(lost, 3) + 0.0:+.3f} nats" if name == "text_gpt" else f"{round(-100 * lost, 2) + 0.0:+.2f} points"


def _mean(runs: list[Run], key: str) -> float:
    return statistics.fmean(run[key] for run in runs)


def _spread(runs: list[Run], key: str) -> str:
    values = [run[key] for run in runs]
    return f"{statistics.fmean(values):.4f}" + (f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else "")


def write_figure(runs: Sequence[Run], path: Path) -> None:
    """Loss on the test set less that of ReLU in the same network and seeds, against the share of zeros reached."""
    grouped = {name: groups for name, groups in _grouped(runs).items() if ("dense", "relu", 0.0) in groups}
    with style():
        rows = math.ceil(len(grouped) / 2)
        figure, axes = panels(rows, 2, height=2.2 * rows)
        for axis, (name, groups) in zip(np.ravel(axes), grouped.items(), strict=False):
            _panel(axis, name, groups)
        _save(figure, path)


def _panel(axis: Axes, name: str, groups: dict[tuple[str, str, float], list[Run]]) -> None:
    relu = groups["dense", "relu", 0.0]
    for (method, activation), (colour, marker) in _MARKS.items():
        points = [runs for key, runs in groups.items() if key[:2] == (method, activation)]
        if points:
            zeros = [_mean(runs, "zeros") for runs in points]
            label = f"{activation}, {_METHODS[method]}"
            axis.plot(zeros, [_added(runs, relu) for runs in points], marker + "-", color=colour, label=label)
    for key, runs in groups.items():
        if key[0] == "dense":
            axis.axhline(_added(runs, relu), linestyle="--" if key[1] == "relu" else ":", color="0.4", label=key[1])
    for share in _PUBLISHED.values():
        axis.axvline(share, ymax=0.04, color="0.3")
    title = textwrap.fill(NETWORKS[name].title, 42)
    axis.set(title=title, xlabel="share of zeros on the test set", ylabel="loss above ReLU's")
    axis.legend(loc="best", fontsize=6)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path.with_suffix(".png"), dpi=160)
