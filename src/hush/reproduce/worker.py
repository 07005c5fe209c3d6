"""A process of a sweep, one run after another: `python -m hush.reproduce.worker ROOT THREADS [DATA_DIR]`.

It reads a config from each line of its stdin, trains it and answers with a line on stdout: 0 when the run is done, 1
when it cannot be trained (the reason is one sentence on stderr), 3 when another process is training it. It lives no
longer than the sweep that started it: when the other end of its stdin closes, in whatever way, it ends.
"""

import os
import queue
import signal
import sys
import threading
import traceback
from typing import NoReturn

__all__ = ["BUSY", "FAILED", "main", "train_one"]

FAILED, BUSY = 1, 3


def main(arguments: list[str]) -> NoReturn:
    # Ctrl-C reaches every process of the terminal; the sweep decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a library prints, in Python or not, must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    configs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(configs,), daemon=True).start()
    while True:
        code = train_one(configs.get(), arguments[0], int(arguments[1]), arguments[2] if len(arguments) > 2 else None)
        sys.stderr.flush()
        print(code, file=answers, flush=True)


def train_one(text: str, root: str, threads: int, data_dir: str | None) -> int:
    """Train the config in `text`; the exit code."""
    import torch

    from hush.sparse import keep_freed_memory
    from hush.train import RunBusyError, TrainConfig, train

    keep_freed_memory()
    torch.set_num_threads(threads)
    try:
        train(TrainConfig.from_json(text), root, data_dir=data_dir, progress=False, tensorboard=False)
    except RunBusyError as error:
        print(error, file=sys.stderr)
        return BUSY
    except ValueError as error:  # hush's own errors are sentences
        print(error, file=sys.stderr)
        return FAILED
    return 0


def _read(configs: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        configs.put(line)
    os._exit(FAILED)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        # The thread that waits for stdin holds its lock, which an ordinary exit would wait for.
        os._exit(FAILED)
