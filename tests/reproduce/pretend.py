"""A worker that pretends: it reads configs as the real one does and leaves what the seed says, without any training.

seed % 10: 0 done; 1 an error, one sentence; 2 busy; 3 killed at its first start, done at its second; 4 always killed;
5 waits for its stdin to end; 6 a bug. Each start is a line in ROOT/starts, with the worker's process number.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

root, threads = Path(sys.argv[1]), sys.argv[2]
root.mkdir(parents=True, exist_ok=True)
for line in sys.stdin:
    seed = json.loads(line)["seed"]
    with (root / "starts").open("a") as file:
        file.write(f"{seed} {threads} {os.environ['OMP_NUM_THREADS']} {os.getpid()}\n")
    starts = [line.split()[0] for line in (root / "starts").read_text().splitlines()]
    kind = seed % 10
    if kind == 1:
        sys.stderr.write("warning: nothing\nthere is no room for this run.\n")
    if kind == 4 or (kind == 3 and starts.count(str(seed)) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == 5:
        (root / f"waiting{seed}").touch()
        sys.stdin.read()
        (root / f"ended{seed}").touch()
        sys.exit(1)
    if kind == 6:
        raise RuntimeError("nobody thought of this")
    time.sleep(0.05)
    if kind in (0, 3):
        (Path(os.environ["PRETEND"]) / str(seed) / "result.json").touch()
    sys.stderr.flush()
    print({1: 1, 2: 3}.get(kind, 0), flush=True)
