"""Beyond the paper: 90 and 95 % zeros at 30 and 100 layers, clipped, relative and at a larger q*, and what hush said.

    python -m benchmarks.beyond                                   # train what is missing, two runs at a time
    python -m benchmarks.beyond --depth 30 --seeds 3
    python -m benchmarks.beyond --show --out docs/results/beyond  # .md and .csv of what is there

Every network is a chain of 300 units trained on MNIST as `hush train` does it, in four epochs and with images that are
standardised one by one: AdamW at 0.01 / depth, centred gradients, and a start that is even, with a head at ten times
the rate, but at 30 layers with 90 % zeros, where it is linear. hush chooses the clip.

A chain at q* = 4 is that at q* = 1 with every activation, bias and logit doubled. To AdamW two things differ: logits
are twice as large, so that a step changes them twice as much, and a step changes a bias by half as much of its size.
The rows at twice and half the rate show how much of what q* does is the rate.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks._csv_rows import text_of, write_csv
from hush.reproduce.presets import preset
from hush.reproduce.provenance import provenance_of_runs
from hush.reproduce.sweep import is_done, run_sweep
from hush.train import TrainConfig
from hush.train.result import Run, load_run

DEPTHS = {30: "shallow", 100: "deep"}
SPARSITIES = (0.9, 0.95)
# (activation, q*, the rate as a multiple of the recipe's)
FORMS = (
    ("crelu", 1.0, 1.0),
    ("cst", 1.0, 1.0),
    ("relative_relu", 1.0, 1.0),
    ("crelu", 4.0, 1.0),
    ("crelu", 4.0, 0.5),
    ("crelu", 1.0, 2.0),
)
COLUMNS = {
    "depth": "layers",
    "sparsity": "s",
    "activation": "φ",
    "clip": "m",
    "q_star": "q*",
    "lr": "rate",
    "seed": "seed",
    "predicted": "hush said",
    "accuracy": "test accuracy",
    "best": "best on held-out images",
    "zeros": "zeros",
    "lowest_layer": "lowest layer",
    "outcome": "outcome",
    "as_said": "as said",
    "seconds": "",
}


def configs(depths: list[int], seeds: int) -> Iterator[TrainConfig]:
    """The first seed of everything first."""
    for seed in range(seeds):
        for depth in depths:
            # The start is left to the recipe, which looks at the zeros too.
            quick = preset("quick", DEPTHS[depth]).fields
            fields = {name: value for name, value in quick.items() if name not in ("start", "head_rate")}
            for sparsity in SPARSITIES:
                for name, q_star, rate in FORMS:
                    how = {**fields, "lr": rate * fields["lr"]}
                    yield TrainConfig(activation=name, sparsity=sparsity, q_star=q_star, seed=seed, **how)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, choices=[*DEPTHS], action="append", help="By default both.")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--root", type=Path, default=Path("runs/beyond"), help="Where the run directories are.")
    parser.add_argument("--workers", type=int, help="Runs at a time; by default one for each core.")
    parser.add_argument("--show", action="store_true", help="Train nothing: print what is there.")
    parser.add_argument("--out", type=Path, help="Where to write .md and .csv, without the suffix.")
    asked = parser.parse_args()
    wanted = list(configs(asked.depth or [*DEPTHS], asked.seeds))
    if not asked.show:
        print(*run_sweep(wanted, asked.root, workers=asked.workers).sentences(), sep="\n")
    runs = [load_run(asked.root / config.name, config) for config in wanted if is_done(config, asked.root)]
    rows = [row_of(run) for run in runs]
    text = page(rows, runs, len(wanted), asked.out)
    print(text)
    if asked.out:
        write_csv(asked.out, [*COLUMNS], rows)
        asked.out.with_suffix(".md").write_text(text)


def row_of(run: Run) -> dict[str, Any]:
    config, result = run.config, run.result
    assert result is not None
    held = result.prediction_held
    return {
        "depth": config.depth,
        "sparsity": f"{config.sparsity:g}",
        "activation": config.activation,
        "clip": "" if config.design().clip is None else config.design().clip,
        "q_star": f"{config.q_star:g}",
        "lr": f"{config.lr:.3g}",
        "seed": config.seed,
        "predicted": "trains" if result.predicted_trains else "does not",
        "accuracy": result.test_accuracy,
        "best": float(max(run.metrics["validation_accuracy"])),
        "zeros": result.sparsity,
        "lowest_layer": min(result.layer_sparsity),
        "outcome": str(result.outcome),
        "as_said": "" if held is None else "yes" if held else "no",
        "seconds": round(result.seconds),
    }


def page(rows: list[dict[str, Any]], runs: list[Run], wanted: int, out: Path | None) -> str:
    columns = {key: heading for key, heading in COLUMNS.items() if heading}
    lines = ["| " + " | ".join(columns.values()) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(text_of(row[key]) or "–" for key in columns) + " |" for row in rows]
    judged = [row for row in rows if row["as_said"]]
    right = sum(row["as_said"] == "yes" for row in judged)
    command = "python -m benchmarks.beyond --show" + (f" --out {out}" if out else "")
    pieces = [
        "# Beyond the paper",
        "`python -m benchmarks.beyond`",
        (__doc__ or "").split("\n\n", 2)[2].rstrip(),
        "\n".join(lines),
        f"{len(rows)} of {wanted} runs have been trained.",
        f"{right} of {len(judged)} went as hush said before training; its verdict is on the network as it is drawn, of "
        f"which the start changes much.",
        "\n\n".join(provenance_of_runs(runs).sentences(command)),
    ]
    return "\n\n".join(pieces) + "\n"


if __name__ == "__main__":
    main()
