"""Sweeps on this machine: so many processes at a time, each of which trains one run after another."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from hush.reproduce.sweep import Swept, Watcher, is_done
from hush.reproduce.worker import BUSY
from hush.train.config import TrainConfig
from hush.train.machine import usable_cores

__all__ = ["WORKER", "run_local"]

WORKER = (sys.executable, "-m", "hush.reproduce.worker")

_POLL = 0.1  # seconds


@dataclass
class _Job:
    """A run and the process that trains it."""

    config: TrainConfig
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]

    def code(self) -> int | None:
        """What the worker answered, or how it ended; None while it trains."""
        assert self.process.stdout is not None
        ended = self.process.poll()
        answer = self.process.stdout.read()  # does not wait
        return int(answer) if answer else ended

    def sentence(self, code: int) -> str:
        """The last thing the process said on stderr: hush's errors are one line, a traceback ends with its own."""
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else f"its process ended with code {code} and said nothing."


def run_local(
    todo: list[TrainConfig],
    root: Path,
    swept: Swept,
    watcher: Watcher,
    workers: int,
    data_dir: str | Path | None,
    retries: int,
) -> None:
    """Keep `workers` processes busy until every run is done or given up; what comes of each goes into `swept`."""
    _check_data(todo, data_dir)
    threads = max(1, usable_cores() // workers)
    queue, jobs, idle, deaths = deque(todo), list[_Job](), list[_Job](), dict[str, int]()
    try:
        while queue or jobs:
            while queue and len(jobs) < workers:
                config = queue.popleft()
                # Loading the libraries takes seconds, so a worker that has them is given the next run.
                jobs.append(_hand(config, idle.pop() if idle else _start(config, root, threads, data_dir)))
                watcher.started(config)
            time.sleep(_POLL)
            watcher.tick()
            for job, code in [(job, code) for job in jobs if (code := job.code()) is not None]:
                jobs.remove(job)
                name = job.config.name
                deaths[name] = deaths.get(name, 0) + (code < 0)
                if code < 0 and deaths[name] <= retries:
                    queue.appendleft(job.config)
                    watcher.ended(job.config, _killed(code))
                else:
                    watcher.ended(job.config, _note_end(swept, job, code, root))
                if job.process.poll() is None:
                    idle.append(job)
                else:
                    _close(job)
    except KeyboardInterrupt:
        swept.interrupted = True
    except OSError as error:
        raise ValueError(f"cannot start a run ({error.strerror or error}); the same command goes on later.") from error
    finally:
        for job in (*jobs, *idle):
            _close(job)


def _note_end(swept: Swept, job: _Job, code: int, root: Path) -> str | None:
    """Put an ended job into `swept`; its sentence if it failed."""
    name = job.config.name
    if code == 0 and is_done(job.config, root):
        swept.done.append(name)
        return None
    if code == BUSY:
        swept.busy.append(name)
        return "another process is training it."
    swept.errors[name] = _killed(code) if code < 0 else job.sentence(code)
    return swept.errors[name]


def _killed(code: int) -> str:
    return f"its process was killed by {signal.Signals(-code).name}; it goes on from its last whole epoch."


def _check_data(todo: list[TrainConfig], data_dir: str | Path | None) -> None:
    """Fetch what is missing once, before many processes ask for it, and fail once if it cannot be had."""
    from hush.data import DataError, fetch, where

    # The text comes with Python.
    for name in dict.fromkeys(config.data for config in todo if config.data != "text"):
        try:
            where(name, directory=data_dir)
        except DataError:
            fetch(name, directory=data_dir)


def _start(config: TrainConfig, root: Path, threads: int, data_dir: str | Path | None) -> _Job:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its job
    arguments = [str(root), str(threads), *([] if data_dir is None else [str(data_dir)])]
    # Libraries size their pools by this when they are loaded, before anyone can call set_num_threads.
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    process = subprocess.Popen(
        [*WORKER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return _Job(config, process, errors)


def _hand(config: TrainConfig, job: _Job) -> _Job:
    """Give a worker its next run."""
    assert job.process.stdin is not None
    job.errors.seek(0)
    job.errors.truncate()
    try:
        # It stays open: when this process ends, however it does, the worker reads the end of it and ends too.
        job.process.stdin.write(json.dumps(config.to_dict()).encode() + b"\n")
        job.process.stdin.flush()
    except BrokenPipeError:  # The worker died at once; the loop in run_local sees how it ended.
        pass
    return replace(job, config=config)


def _close(job: _Job) -> None:
    if job.process.poll() is None:
        job.process.kill()
    job.process.wait()
    assert job.process.stdin is not None
    assert job.process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        job.process.stdin.close()
    job.process.stdout.close()
    job.errors.close()
