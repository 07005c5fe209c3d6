"""Short trainings of residual networks, safe to unsafe, and the rule that tells them apart at initialisation.

    python -m benchmarks.block_outcomes                      train what is not yet done (about half an hour on one core)
    python -m benchmarks.block_outcomes --optimizer adamw    the first half again with AdamW
    python -m benchmarks.block_outcomes --table WHEN,WHERE   docs/results/block_outcomes.csv and .md from what is done
    python -m benchmarks.block_outcomes --rule               choose the rule on one half, try it on the other
    python -m benchmarks.block_outcomes --draw               write the list of networks again

Finished runs are kept under --root, one line of JSON each: a run that is there is not repeated.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks._block_networks import Setting
from benchmarks._block_report import report
from benchmarks._block_settings import draw_settings, read_settings, write_settings
from benchmarks._block_table import TABLE, read_table, write_table
from benchmarks._block_training import measure, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--table", metavar="WHEN_AND_WHERE", help="when the runs ran, and on which machine")
    parser.add_argument("--rule", action="store_true")
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--backwards", action="store_true", help="from the end of the list, beside another process")
    parser.add_argument("--root", type=Path, default=Path("runs/block_outcomes"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.draw:
        write_settings(draw_settings())
    elif asked.table:
        runs = {name: read_runs(asked.root / f"{name}.jsonl") for name in ("sgd", "adamw")}
        heading = f"python -m benchmarks.block_outcomes; trained on {asked.table}."
        write_table(runs["sgd"], runs["adamw"], TABLE, heading)
        TABLE.with_suffix(".md").write_text(f"{report(read_table(TABLE))}\n\n`{heading[:-1]}`\n")
    elif asked.rule:
        print(report(read_table(TABLE)))
    else:
        run_all(asked.root / f"{asked.optimizer}.jsonl", asked.optimizer, asked.backwards)


def run_all(path: Path, optimizer: str, backwards: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = [(half, setting) for half, setting in read_settings() if optimizer == "sgd" or half != "C"]
    for number, (half, setting) in sorted(enumerate(listed, 1), reverse=backwards):
        # Read again each time, because another process may be at work on the same list.
        if any(key_of(Setting(**run["setting"])) == key_of(setting) for run in read_runs(path)):
            continue
        run = {"setting": asdict(setting), "half": half, **train(setting, optimizer), "figures": measure(setting)}
        with path.open("a") as file:
            file.write(json.dumps(run) + "\n")
        print(f"{number}/{len(listed)} {run['outcome']:16s} {run['accuracy']:.3f} {run['seconds']:5.1f} s  {setting}")


def read_runs(path: Path) -> list[dict]:
    """The finished runs in the order of the list, the first of each network.

    A line that was cut off when the command was stopped is left out, and its run repeated.
    """
    runs: dict[str, dict] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            run = json.loads(line)
        except json.JSONDecodeError:
            continue
        runs.setdefault(key_of(Setting(**run["setting"])), run)
    return [runs[key] for _, setting in read_settings() if (key := key_of(setting)) in runs]


def key_of(setting: Setting) -> str:
    return json.dumps(asdict(setting))


if __name__ == "__main__":
    main()
