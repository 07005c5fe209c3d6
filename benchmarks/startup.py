"""How long a command takes to start: median seconds, and processor time as a ratio to `import torch` in the same run.

    python benchmarks/startup.py --repeats 7

The commands take turns, so that whatever disturbs the machine disturbs all; on a busy machine processor time is the
better measure. The last line is `hush train` until its first step is over.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DESIGN = ["design", "crelu", "--sparsity", "0.85", "--width", "300", "--depth", "100"]
TRAIN = ["train", "--depth", "30", "--v-prime", "0.7", "--epochs", "1", "--subset", "32", "--no-progress"]
# `hush train` that leaves when its first step is over.
FIRST_STEP = """
import os
from hush.cli import _lightning, main

load = _lightning.load_lightning

def load_and_watch():
    load()
    from hush.train.record import Record
    Record.on_train_batch_end = lambda *_: os._exit(0)

_lightning.load_lightning = load_and_watch
main()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    python = sys.executable
    hush = [python, "-m", "hush"]
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "python -c pass": [python, "-c", "pass"],
            "import torch": [python, "-c", "import torch"],
            "import lightning.pytorch": [python, "-c", "import lightning.pytorch"],
            "hush --help": [*hush, "--help"],
            "hush design": [*hush, *DESIGN],
            "hush train, a finished run": [*hush, *TRAIN, "--root", f"{folder}/finished"],
            "hush train, to its first step": [python, "-c", FIRST_STEP, *TRAIN, "--root", f"{folder}/new"],
        }
        taken = measure(commands, Path(folder), repeats)
    torch = statistics.median(cpu for _, cpu in taken["import torch"])
    for name, times in taken.items():
        wall, cpu = (statistics.median(values) for values in zip(*times, strict=True))
        print(f"{name:30} {wall:6.2f} s, {cpu:6.2f} s of processor time, {cpu / torch:.2f} of import torch")


def measure(commands: dict[str, list[str]], folder: Path, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """(seconds, processor time) of every command in every turn, after one that warms the caches of the disk."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    for turn in range(repeats + 1):
        for name, command in commands.items():
            begin, before = time.perf_counter(), processor_time()
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
            if done.returncode:
                raise SystemExit(f"{name} failed: {done.stderr}")
            if turn:
                taken[name].append((time.perf_counter() - begin, processor_time() - before))
    return taken


def processor_time() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
