"""A sweep killed at random moments, again and again: python -m benchmarks.kills [--kills 20] [--seed 0].

Runs the smoke preset of the clipped 30-layer table twice: once undisturbed, and once with kill -9 of a worker or of the
whole sweep at random moments, started again each time. Says whether the two tables are the same, byte by byte, and
whether any run was lost, done twice or touched after it was done.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hush.reproduce.comparison_table import compare_results
from hush.reproduce.experiments import Experiment, experiment
from hush.reproduce.printed_table import render
from hush.reproduce.results import read_results
from hush.train import load_run

ROWS, SEEDS, EPOCHS = "8,20", 2, 60


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    made = experiment("table-shallow-clipped", "smoke", rows=ROWS, seeds=SEEDS, given={"epochs": EPOCHS})
    with tempfile.TemporaryDirectory() as scratch:
        calm, wild = Path(scratch) / "calm", Path(scratch) / "wild"
        began = time.perf_counter()
        start(calm).wait()
        typical = min(60.0, time.perf_counter() - began)
        killed = {"sweep": 0, "worker": 0}
        finished: dict[str, int] = {}
        faults: list[str] = []
        while sum(killed.values()) < arguments.kills:
            disturb(wild, dice, typical, killed, finished, faults)
            print(f"{sum(killed.values())} kills, {len(finished)} of {len(made.configs)} runs done", file=sys.stderr)
            if len(finished) == len(made.configs):  # all done before enough kills: once more from the beginning
                faults += compare(made, calm, wild, finished)
                wild, finished = Path(scratch) / f"wild{sum(killed.values())}", {}
        start(wild).wait()
        watch(wild, finished, faults)
        faults += compare(made, calm, wild, finished)
    print(f"{killed['worker']} kills of a worker, {killed['sweep']} of the whole sweep, {len(made.configs)} runs.")
    print("\n".join(faults) or "The tables are the same, byte by byte; nothing was lost or done twice.")
    return bool(faults)


def start(root: Path) -> "subprocess.Popen[bytes]":
    command = ["reproduce", "table-shallow-clipped", "--preset", "smoke", "--rows", ROWS, "--seeds", str(SEEDS)]
    command += ["--set", f"epochs={EPOCHS}", "--root", str(root), "--json"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "hush", *command], stdout=quiet, stderr=quiet)


def disturb(
    root: Path, dice: random.Random, typical: float, killed: dict[str, int], finished: dict[str, int], faults: list[str]
) -> None:
    """Start the sweep and kill a worker, then another, and in the end the sweep itself."""
    sweep = start(root)
    for _ in range(3):
        time.sleep(dice.uniform(0.0, typical / 2))
        watch(root, finished, faults)
        if sweep.poll() is not None:
            return
        workers = children(sweep.pid)
        if workers and dice.random() < 0.7:
            kill(dice.choice(workers))
            killed["worker"] += 1
        else:
            break
    sweep.kill()
    sweep.wait()
    killed["sweep"] += 1
    time.sleep(0.5)
    watch(root, finished, faults)


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True)
    return [int(word) for word in listed.stdout.split()]


def kill(pid: int) -> None:
    subprocess.run(["kill", f"-{signal.SIGKILL:d}", str(pid)], stderr=subprocess.DEVNULL)


def watch(root: Path, finished: dict[str, int], faults: list[str]) -> None:
    """Remember when each result was written: it must never be written again."""
    for file in root.glob("*/result.json"):
        written = file.stat().st_mtime_ns
        if finished.setdefault(file.parent.name, written) != written:
            faults.append(f"{file.parent.name} was done twice")


def compare(made: Experiment, calm: Path, wild: Path, finished: dict[str, int]) -> list[str]:
    names = sorted(config.name for config in made.configs)
    faults = []
    if sorted(path.name for path in wild.iterdir()) != names or sorted(finished) != names:
        faults.append(f"the runs are {sorted(finished)}, expected {names}")
    tables = [render([compare_results(read_results(made, root), "")], "csv") for root in (calm, wild)]
    if tables[0] != tables[1]:
        faults.append("the tables differ")
    for name in names:
        one, other = load_run(calm / name), load_run(wild / name)
        for table in ("metrics", "losses", "layers"):
            first, second = getattr(one, table), getattr(other, table)
            columns = [c for c in first if c != "seconds"]
            if any(first[c].tobytes() != second[c].tobytes() for c in columns):
                faults.append(f"{table} of {name} differ")
    return faults


if __name__ == "__main__":
    sys.exit(main())
