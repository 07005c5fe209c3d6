"""The committed table of outcomes: written from the finished runs, read by the rule and its test."""

import csv
import math
from dataclasses import fields
from pathlib import Path

from benchmarks._block_networks import PLAIN, Setting
from benchmarks._block_rule import Judged
from hush.theory.training_rule import BlockFigures

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def write_table(runs: list[dict], path: Path, heading: str) -> None:
    with path.open("w", newline="") as file:
        file.write(f"# {heading}\n")
        writer = csv.writer(file, lineterminator="\n")
        names = [field.name for field in fields(Setting)]
        first = runs[0]["figures"]
        # What was asked for and what was measured at initialisation are both called sparsity.
        labels = ["sparsity_target" if name == "sparsity" else name for name in names]
        writer.writerow(["half", *labels, *first, "outcome", "accuracy", "first_loss", "last_loss", "sparsity_after"])
        for run in runs:
            writer.writerow(
                [
                    run["half"],
                    *(run["setting"][name] for name in names),
                    # 1 − ρ is wanted to three digits even where ρ is nearly 1.
                    *(repr(v) if name == "correlation" else f"{v:.4g}" for name, v in run["figures"].items()),
                    run["outcome"],
                    f"{run['accuracy']:.4f}",
                    f"{run['losses'][0]:.4g}",
                    f"{run['losses'][-1]:.4g}",
                    f"{run['sparsity_after']:.4f}",
                ]
            )


def read_table(path: Path) -> list[Judged]:
    with path.open(newline="") as file:
        return [_judged(row) for row in csv.DictReader(line for line in file if not line.startswith("#"))]


def _judged(row: dict[str, str]) -> Judged:
    sparse = row["activation"] not in PLAIN
    after = float(row["sparsity_after"])
    half_right = row["outcome"] == "trained"
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
        half_right=half_right,
        trained=half_right and float(row["last_loss"]) < math.log(10.0),
        sparsity_after=None if math.isnan(after) else after,
    )


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
