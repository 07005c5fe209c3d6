"""Designs for which the two failure modes cross: predicted, committed, and only then trained.

    python -m benchmarks.predictions --predict      writes docs/results/predictions.csv, with the day, and nothing else
    python -m benchmarks.predictions --train        trains what has no outcome yet, row by row, and fills it in
    python -m benchmarks.predictions                prints the page from the CSV

The predictions are `hush.design`'s, with the norms and cosines of the digits themselves. Training is stopped and resumed
between networks at will; predictions that stand in the CSV are never computed again.
"""

# ruff: noqa: E501 (the lines of the page it writes)
from __future__ import annotations

import argparse
import csv
import datetime
import io
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import hush
from benchmarks._origin import day_and_machine
from hush._files import replace_text
from hush.theory import Design, InputCorrelations, InputNorms, design
from hush.theory.training_rule import INDISTINGUISHABLE_ODDS, TRAINABLE_ODDS, separation_bound

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "predictions"
# (activation, sparsity, V′, width, depth), the cheap ones first. At each (activation, sparsity, width, depth) the slope
# goes from a clip so low that inputs merge, over the middle, to one so high that gradients explode.
DESIGNS = (
    ("crelu", 0.9, 0.4, 128, 20),
    ("crelu", 0.9, 0.7, 128, 20),
    ("crelu", 0.9, 0.95, 128, 20),
    ("cst", 0.8, 0.3, 128, 20),
    ("cst", 0.8, 0.6, 128, 20),
    ("cst", 0.8, 0.95, 128, 20),
    ("crelu", 0.85, 0.4, 128, 30),
    ("crelu", 0.85, 0.6, 128, 30),
    ("crelu", 0.85, 0.95, 128, 30),
    ("crelu", 0.9, 0.5, 128, 30),
    ("crelu", 0.9, 0.75, 128, 30),
    ("crelu", 0.9, 0.95, 128, 30),
    ("cst", 0.8, 0.7, 128, 30),
    ("cst", 0.8, 0.95, 128, 30),
    ("crelu", 0.85, 0.5, 128, 50),
    ("crelu", 0.85, 0.9, 128, 50),
    ("cst", 0.8, 0.7, 128, 50),
    ("crelu", 0.7, 0.7, 128, 70),
    ("crelu", 0.85, 0.7, 128, 70),
    ("crelu", 0.6, 0.7, 128, 100),
)
BATCH, RATE, STEPS = 64, 0.03, 40  # the learning rate is RATE/depth, the steps STEPS × depth
# What counts as what was written down before any of these networks was trained.
TRAINED_FROM = 0.5
SPARSITY_KEPT = 0.05
SHALLOW = 30  # layers
FIELDS = (
    "activation", "sparsity", "v_prime", "width", "depth", "clip", "odds_explode", "odds_vanish",
    "odds_indistinguishable", "separation", "bound", "lost_at_depth", "predicted", "predicted_on", "seed", "test_accuracy",
    "loss", "sparsity_after", "outcome", "hit", "seconds", "trained_on",
)  # fmt: skip


def digits_spread() -> tuple[InputNorms, InputCorrelations]:
    """Of the standardised digits: the spread of |x|²/N, and of the cosine of two of them."""
    x = hush.data.load("digits").train.images.flatten(1).double().numpy()
    return InputNorms.from_samples((x**2).mean(1)), InputCorrelations.from_inputs(x)


def predict() -> list[dict[str, str]]:
    norms, correlations = digits_spread()
    rows = []
    for activation, sparsity, slope, width, depth in DESIGNS:
        made = design(
            activation, sparsity, v_prime=slope, width=width, depth=depth, norms=norms, correlations=correlations
        )
        assert made.odds is not None
        rows.append(
            {
                "activation": activation,
                "sparsity": f"{sparsity:g}",
                "v_prime": f"{slope:g}",
                "width": str(width),
                "depth": str(depth),
                "clip": f"{made.clip:.4f}",
                "odds_explode": f"{made.odds.explode:.4f}",
                "odds_vanish": f"{made.odds.vanish:.4f}",
                "odds_indistinguishable": f"{made.odds.indistinguishable:.3f}",
                "separation": f"{made.separation:.2e}",
                "bound": f"{separation_bound(made.phi().slope_moment(1, 1.0), depth):.2e}",
                "lost_at_depth": "" if made.lost_at_depth is None else str(made.lost_at_depth),
                "predicted": prediction(made),
                "predicted_on": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            }
        )
    return rows


def prediction(made: Design) -> str:
    """explodes, vanishes, indistinguishable or trains: the first that the rule says."""
    assert made.odds is not None
    if made.odds.explode > TRAINABLE_ODDS:
        return "explodes"
    if made.odds.vanish > TRAINABLE_ODDS:
        return "vanishes"
    return "indistinguishable" if made.odds.indistinguishable > INDISTINGUISHABLE_ODDS else "trains"


def train(row: dict[str, str], seed: int = 0) -> dict[str, str]:
    """One network on the digits, by AdamW with a one-cycle rate, on the sparse engine."""
    torch.set_num_threads(1)
    width, depth = int(row["width"]), int(row["depth"])
    made = design(row["activation"], float(row["sparsity"]), clip=float(row["clip"]))
    torch.manual_seed(seed)
    data = hush.data.load("digits", variance=made.input_variance)
    x, y = data.train.images.flatten(1), data.train.labels
    test, answers = data.test.images.flatten(1), data.test.labels
    model = hush.nn.mlp(x.shape[1], 10, made, width=width, depth=depth)
    hush.init_(model, made)
    hush.sparse.accelerate(model)
    steps, rate = STEPS * depth, RATE / depth
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    began, losses = time.process_time(), []
    for _ in range(steps):
        batch = torch.randint(0, len(x), (BATCH,))
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
    with torch.no_grad():
        accuracy = float((model(test).argmax(1) == answers).float().mean())
    end = float(np.mean(losses[-steps // 20 :]))
    zeros = hush.sparsity(model, test).mean
    outcome = what_became(accuracy, end, zeros, float(row["sparsity"]))
    return row | {
        "seed": str(seed),
        "test_accuracy": f"{accuracy:.3f}",
        "loss": f"{end:.3f}",
        "sparsity_after": f"{zeros:.3f}",
        "outcome": outcome,
        "hit": "yes" if (outcome == "trains") == (row["predicted"] == "trains") else "no",
        "seconds": f"{time.process_time() - began:.0f}",
        "trained_on": day_and_machine(),
    }


def what_became(accuracy: float, loss: float, zeros: float, target: float) -> str:
    """Trained as in `hush train`; else exploded where the loss is above that of guessing or the zeros are lost."""
    guessing = math.log(10.0)
    if accuracy >= TRAINED_FROM and loss < guessing:
        return "trains"
    apart = not math.isfinite(loss) or loss > 1.05 * guessing or abs(zeros - target) > SPARSITY_KEPT
    return "explodes" if apart else "indistinguishable"


def read() -> list[dict[str, str]]:
    with RESULTS.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    replace_text(RESULTS.with_suffix(".csv"), text.getvalue())
    replace_text(RESULTS.with_suffix(".md"), page(rows))


def page(rows: list[dict[str, str]]) -> str:
    done = [row for row in rows if row.get("outcome")]
    lines = [
        "# Predicted first, trained afterwards",
        "",
        "`python -m benchmarks.predictions --predict`, then `--train`. Designs at which the odds of the two failure modes cross:",
        "from clips so low that inputs merge to clips so high that gradients explode. The predictions, with the norms and cosines of",
        f"the digits, were written on {rows[0]['predicted_on']} and committed before any of these networks was trained.",
        "They were made with a bound of 0.053 on (1 − ρ)E[φ′²]L²; hush has 0.047 since, with which none of them changes.",
        "",
        f"Trained on the digits by AdamW with a one-cycle rate, {RATE:g}/depth at its highest, {STEPS} × depth steps of {BATCH} images, seed 0.",
        "The rate was chosen on CReLU at s = 0.85, V′ = 0.7, 30 × 128, which is not in the list; CST at s = 0.9, V′ = 0.5, 30 × 128",
        "was seen too. **Trains**: at least half of the test set right, and a training loss below that of guessing. Otherwise it",
        f"**explodes** where the loss is more than 5 % above that of guessing or the share of zeros more than {SPARSITY_KEPT:g} from its",
        "target, and is **indistinguishable** where neither is so.",
        "",
        "| φ | s | V′ | width × depth | m | odds to explode | odds indistinguishable | 1 − ρ (bound) | predicted | accuracy | loss | zeros | outcome | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        marks = {"yes": "✓", "no": "**miss**"}
        lines.append(
            f"| {row['activation']} | {row['sparsity']} | {row['v_prime']} | {row['width']} × {row['depth']} | {row['clip']} "
            f"| {row['odds_explode']} | {row['odds_indistinguishable']} | {row['separation']} ({row['bound']}) | {row['predicted']} "
            f"| {row.get('test_accuracy', '')} | {row.get('loss', '')} | {row.get('sparsity_after', '')} "
            f"| {row.get('outcome', '')} | {marks.get(row.get('hit', ''), '')} |"
        )
    if done:
        shallow = [row for row in done if int(row["depth"]) <= SHALLOW]
        deep = [row for row in done if int(row["depth"]) > SHALLOW]
        said, trained = (sum(row[column] == "trains" for row in deep) for column in ("predicted", "outcome"))
        modes = sum(row["outcome"] == row["predicted"] for row in done)
        lines += [
            "",
            f"**{hits(done)}** right on whether it trains ({more_frequent(done)} for always the more frequent answer), {modes} also on how it",
            f"fails. Up to {SHALLOW} layers {hits(shallow)} ({more_frequent(shallow)}); deeper {hits(deep)}: {said} were said to train and {trained} did. Whether more",
            "steps would train the others was not tried. "
            f"{len(rows) - len(done)} not trained yet. Trained on {done[0]['trained_on']}; {sum(float(row['seconds']) for row in done):.0f} s of one core in all.",
        ]
    return "\n".join([*lines, ""])


def hits(rows: list[dict[str, str]]) -> str:
    return f"{sum(row['hit'] == 'yes' for row in rows)} of {len(rows)}"


def more_frequent(rows: list[dict[str, str]]) -> str:
    """How often one is right who always says what happens more often."""
    trained = sum(row["outcome"] == "trains" for row in rows)
    return f"{max(trained, len(rows) - trained)} of {len(rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true", help="write the predictions; refuses to replace any")
    parser.add_argument("--train", action="store_true", help="train what has no outcome yet")
    arguments = parser.parse_args()
    if arguments.predict:
        if RESULTS.with_suffix(".csv").exists():
            raise SystemExit(f"{RESULTS.with_suffix('.csv')} holds predictions already; they are made once.")
        write(predict())
    rows = read()
    if arguments.train:
        for index, row in enumerate(rows):
            if not row["outcome"]:
                rows[index] = train(row)
                write(rows)
                print(
                    {name: rows[index][name] for name in ("predicted", "outcome", "test_accuracy", "loss")}, flush=True
                )
    write(rows)
    print(page(rows))


if __name__ == "__main__":
    main()
