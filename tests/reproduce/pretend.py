"""A worker that pretends: it reads a config as the real one does and leaves what the seed says, without any training.

seed % 10: 0 done; 1 an error, one sentence; 2 busy; 3 killed at its first start, done at its second; 4 always killed;
5 waits for its stdin to end. Each start is a line in ROOT/starts.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

root, threads = Path(sys.argv[1]), sys.argv[2]
seed = json.loads(sys.stdin.buffer.readline())["seed"]
root.mkdir(parents=True, exist_ok=True)
with (root / "starts").open("a") as file:
    file.write(f"{seed} {threads} {os.environ['OMP_NUM_THREADS']}\n")
starts = [line.split()[0] for line in (root / "starts").read_text().splitlines()]
kind = seed % 10
if kind == 1:
    sys.exit("warning: nothing\nthere is no room for this run.")
if kind == 2:
    sys.exit(3)
if kind == 4 or (kind == 3 and starts.count(str(seed)) == 1):
    os.kill(os.getpid(), signal.SIGKILL)
if kind == 5:
    (root / f"waiting{seed}").touch()
    sys.stdin.buffer.read()
    (root / f"ended{seed}").touch()
    sys.exit(1)
time.sleep(0.05)
directory = Path(os.environ["PRETEND"]) / str(seed)
(directory / "result.json").touch()
assert threading.active_count() == 1
