"""The networks whose training is judged: a seeded random design of experiments and a few picked by hand.

The list was written to block_settings.csv before any of its networks was trained, in two steps. The first half, "A" and
"B", is for choosing the rule: which figures it takes, and their bounds. The second, "C", of the same size and by the
same design of experiments, was trained when the rule stood. `python -m benchmarks.block_outcomes --draw` writes the
list again, the same.
"""

import csv
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from benchmarks._block_networks import PLAIN, Setting

PATH = Path(__file__).with_name("block_settings.csv")
_DRAWN = {"digits": 84, "mnist": 42}
_HELD_OUT = {"digits": 98, "mnist": 56}
_WIDTHS = {"digits": (64, 96, 128), "mnist": (100, 200, 300)}
_SPARSITIES = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)
# Sparse networks with all their weights as they should be, and the ways in which they are not.
_FAULTS = {
    "none": 0.3,
    "out": 0.2,
    "in": 0.1,
    "both": 0.1,
    "bias": 0.1,
    "chain": 0.15,
    "inputs": 0.05,
}


def draw_settings() -> list[tuple[str, Setting]]:
    """(part, network) of every network of the list; A and B alternate in a shuffled order within each data set."""
    rng = np.random.default_rng(2026)
    listed = []
    for data, count in _DRAWN.items():
        ours = [_random(data, rng, seed) for seed in range(count)] + _picked(data)
        for place, index in enumerate(rng.permutation(len(ours))):
            listed.append(("AB"[place % 2], ours[index]))
    rng = np.random.default_rng(2027)
    for data, count in _HELD_OUT.items():
        listed += [("C", _random(data, rng, 2000 + seed)) for seed in range(count)]
    return listed


def _random(data: str, rng: np.random.Generator, seed: int) -> Setting:
    def one_of(values: "tuple | list | dict", p: "list[float] | None" = None):
        if isinstance(values, dict):
            values, p = list(values), list(values.values())
        return values[int(rng.choice(len(values), p=p))]

    activation = one_of(
        {"crelu": 0.3, "cst": 0.25, "shifted_relu": 0.15, "soft_threshold": 0.1, "relu": 0.1, "gelu": 0.1}
    )
    sparse = activation not in PLAIN
    values = {
        "data": data,
        "matrices": one_of((1, 2)),
        "norm": one_of({"none": 0.4, "post": 0.3, "rms": 0.15, "layer": 0.15}),
        "activation": activation,
        "sparsity": one_of(_SPARSITIES) if sparse else 0.0,
        "slope": one_of((0.5, 0.7, 0.9)) if activation in ("crelu", "cst") else 0.0,
        "branch_scale": one_of({"1": 0.5, "1/sqrt(depth)": 0.35, "1/depth": 0.15}),
        "depth": one_of((10, 15, 20, 30, 40, 50, 60)),
        "width": one_of(_WIDTHS[data]),
        "seed": seed,
    }
    fault = one_of(_FAULTS)
    if fault == "in" and values["matrices"] == 1:
        # Nothing stands between the stream and φ there.
        fault = "out"
    if fault == "chain":
        values["draw"] = "chain"
    if fault == "out":
        values["times_out"] = one_of((1.5, 2.0, 3.0))
    if fault == "in":
        values["times_in"] = one_of((0.3, 1.5, 2.0, 3.0))
    if fault == "both":
        values["times_in"] = values["times_out"] = one_of((0.3, 1.5, 2.0, 3.0))
    if fault == "bias":
        values["bias"] = one_of((0.5, 1.0, 2.0))
    if fault == "inputs":
        values["input_scale"] = one_of((0.1, 0.3, 3.0))
    return Setting(**values)


def _picked(data: str) -> list[Setting]:
    """Safe references, and one clear case or two of each failure mode."""
    width = {"digits": 96, "mnist": 200}[data]

    def network(matrices, norm, activation, sparsity, branch_scale, depth, **others):
        slope = 0.7 if activation in ("crelu", "cst") else 0.0
        values = {"width": width, "slope": slope, "seed": 1000, **others}
        return Setting(data, matrices, norm, activation, sparsity, branch_scale=branch_scale, depth=depth, **values)

    root = "1/sqrt(depth)"
    return [
        # Safe: the default of a residual design, beside its ReLU and GELU twins.
        network(2, "rms", "crelu", 0.95, root, 60),
        network(2, "rms", "relu", 0.0, root, 60),
        network(2, "rms", "gelu", 0.0, root, 60),
        network(1, "layer", "cst", 0.9, root, 40),
        network(2, "none", "crelu", 0.85, root, 30),
        # Explodes: branches of full weight, no norm.
        network(2, "none", "crelu", 0.9, "1", 60),
        network(2, "none", "relu", 0.0, "1", 40),
        network(2, "none", "crelu", 0.8, "1", 40, draw="chain"),
        # Vanishes: every post-norm takes away more than the branch gives back.
        network(2, "post", "crelu", 0.9, "1", 60, bias=2.0),
        network(2, "post", "relu", 0.0, "1", 60, bias=2.0),
        # Indistinguishable: the common part that biases add is kept by every norm.
        network(1, "post", "crelu", 0.95, "1", 60, draw="chain"),
        network(1, "post", "cst", 0.98, "1", 60, draw="chain"),
        # Sparsity lost: the branches give out zeros only, or hardly any.
        network(2, "rms", "crelu", 0.95, root, 40, times_in=0.3),
        network(2, "rms", "crelu", 0.95, root, 40, times_in=3.0),
    ]


def write_settings(listed: list[tuple[str, Setting]], path: Path = PATH) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["half", *(field.name for field in fields(Setting))])
        writer.writerows([half, *asdict(setting).values()] for half, setting in listed)


def read_settings(path: Path = PATH) -> list[tuple[str, Setting]]:
    kinds = {
        field.name: {"str": str, "int": int, "float": float}[getattr(field.type, "__name__", str(field.type))]
        for field in fields(Setting)
    }
    with path.open(newline="") as file:
        return [
            (row["half"], Setting(**{name: kind(row[name]) for name, kind in kinds.items()}))
            for row in csv.DictReader(file)
        ]
