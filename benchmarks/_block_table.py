"""The committed table of outcomes: written from the finished runs, read by the rule and its test."""

import csv
import math
from dataclasses import fields
from pathlib import Path

from benchmarks._block_networks import PLAIN, Setting
from benchmarks._block_rule import Judged
from hush.theory.training_rule import BlockFigures

TABLE = Path(__file__).parents[1] / "docs" / "results" / "block_outcomes.csv"
_SETTING = [field.name for field in fields(Setting)]
_OUTCOME = ("outcome", "accuracy", "first_loss", "last_loss", "sparsity_after")


def write_table(sgd: list[dict], adamw: list[dict], path: Path, heading: str) -> None:
    """One line a network; what came of it with AdamW stands in columns of its own, empty where that was not tried."""
    again = {tuple(run["setting"].values()): run for run in adamw}
    # What was asked for and what was measured at initialisation are both called sparsity.
    labels = ["sparsity_target" if name == "sparsity" else name for name in _SETTING]
    with path.open("w", newline="") as file:
        file.write(f"# {heading}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["half", *labels, *sgd[0]["figures"], *_OUTCOME, *(f"adamw_{name}" for name in _OUTCOME)])
        for run in sgd:
            other = again.get(tuple(run["setting"].values()))
            writer.writerow(
                [
                    run["half"],
                    *(run["setting"][name] for name in _SETTING),
                    # 1 − ρ is wanted to several digits even where ρ is nearly 1.
                    *(repr(v) if name == "correlation" else f"{v:.4g}" for name, v in run["figures"].items()),
                    *_outcome(run),
                    *(_outcome(other) if other else [""] * len(_OUTCOME)),
                ]
            )


def _outcome(run: dict) -> list[str]:
    first, last = run["losses"][0], run["losses"][-1]
    return [run["outcome"], f"{run['accuracy']:.4f}", f"{first:.4g}", f"{last:.4g}", f"{run['sparsity_after']:.4f}"]


def read_table(path: Path = TABLE) -> list[Judged]:
    with path.open(newline="") as file:
        return [_judged(row) for row in csv.DictReader(line for line in file if not line.startswith("#"))]


def _judged(row: dict[str, str]) -> Judged:
    sparse = row["activation"] not in PLAIN
    after = float(row["sparsity_after"])
    return Judged(
        name=_name(row),
        half=row["half"],
        figures=BlockFigures(
            highest_gain_log10=float(row["highest_gain"]),
            first_gain_log10=float(row["first_gain"]),
            output_log10=float(row["output"]),
            correlation=float(row["correlation"]),
            sparsity=float(row["sparsity"]) if sparse else None,
            target_sparsity=float(row["sparsity_target"]) if sparse else None,
        ),
        outcome=row["outcome"],
        accuracy=float(row["accuracy"]),
        half_right=row["outcome"] == "trained",
        trained=_trained(row["outcome"], row["last_loss"]),
        trained_with_adamw=_trained(row["adamw_outcome"], row["adamw_last_loss"]) if row["adamw_outcome"] else None,
        sparsity_after=None if math.isnan(after) else after,
    )


def _trained(outcome: str, last_loss: str) -> bool:
    return outcome == "trained" and float(last_loss) < math.log(10.0)


def _name(row: dict[str, str]) -> str:
    """The network in a line."""
    parts = [
        row["data"],
        f"{row['depth']} × {row['width']}",
        "one matrix" if row["matrices"] == "1" else "two matrices",
        {"none": "no norm", "post": "post-norm"}.get(row["norm"], f"{row['norm']} norm"),
        row["activation"] if row["activation"] in PLAIN else f"{row['activation']} {float(row['sparsity_target']):g}",
        f"β = {row['branch_scale']}",
    ]
    if row["draw"] == "chain":
        parts.append("drawn as a chain")
    labels = {"times_in": "W₁ × ", "times_out": "W_out × ", "input_scale": "inputs × "}
    parts += [f"{label}{float(row[key]):g}" for key, label in labels.items() if float(row[key]) != 1.0]
    if float(row["bias"]):
        parts.append(f"σ_b = {float(row['bias']):g}")
    return ", ".join(parts)
