"""The process of one run of a sweep: `python -m hush.reproduce.worker ROOT THREADS [DATA_DIR]`, the config on stdin.

It lives no longer than the sweep that started it: when the other end of its stdin closes, in whatever way, it ends. A
run that cannot be trained is one sentence on stderr and exit code 1; one that another process is training, code 3.
"""

import os
import signal
import sys
import threading
from typing import BinaryIO

__all__ = ["BUSY", "FAILED", "main", "run"]

FAILED, BUSY = 1, 3


def main(arguments: list[str]) -> int:
    # Ctrl-C reaches every process of the terminal; the sweep decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    text = sys.stdin.buffer.readline().decode()
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    return run(text, arguments[0], int(arguments[1]), arguments[2] if len(arguments) > 2 else None)


def run(text: str, root: str, threads: int, directory: str | None) -> int:
    """Train the config in `text`; the exit code."""
    import torch

    from hush.train import RunBusyError, TrainConfig, train

    torch.set_num_threads(threads)
    try:
        train(TrainConfig.from_json(text), root, directory=directory, progress=False, tensorboard=False)
    except RunBusyError as error:
        print(error, file=sys.stderr)
        return BUSY
    except ValueError as error:  # hush's own errors are sentences
        print(error, file=sys.stderr)
        return FAILED
    return 0


def _end_with(stdin: BinaryIO) -> None:
    stdin.read()
    os._exit(FAILED)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The thread that waits for stdin holds its lock, which an ordinary exit would wait for.
    os._exit(code)
