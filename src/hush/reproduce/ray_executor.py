"""Sweeps on a Ray cluster: each run a task, begun again elsewhere when its worker or its machine dies."""

import json
import logging
import os
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hush._extras import how_to_install
from hush._files import replace_bytes
from hush.reproduce.sweep import Cluster, Swept, Watcher, is_done
from hush.train.config import TrainConfig

__all__ = ["run_ray"]

_POLL = 1.0  # seconds
_Files = dict[str, bytes]  # a run directory, which has no folders in it


def run_ray(
    todo: list[TrainConfig],
    root: Path,
    swept: Swept,
    watcher: Watcher,
    workers: int | None,
    data_dir: str | Path | None,
    cluster: Cluster,
    retries: int,
) -> None:
    """Keep the cluster busy until every run is done or given up; what comes of each goes into `swept`.

    Ray itself begins a task again, up to `retries` times, when its worker dies; the run then goes on from the last
    whole epoch that its directory holds.
    """
    ray = _import_ray()
    root = root.absolute()
    with _connected(ray, cluster.address):
        # One process for one run, as on one machine: nothing of a run lives on in the next.
        task = ray.remote(num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_retries=retries, max_calls=1)(_train)
        queue, running = deque(todo), dict[Any, TrainConfig]()
        try:
            while queue or running:
                while queue and len(running) < (workers or len(todo)):
                    config = queue.popleft()
                    begun = _pack(root / config.name) if cluster.collect else {}
                    text, there = json.dumps(config.to_dict()), None if cluster.collect else str(root)
                    running[task.remote(text, there, data_dir, cluster.cpus, begun)] = config
                    watcher.started(config)
                ended, _ = ray.wait(list(running), timeout=_POLL)
                watcher.tick()
                for reference in ended:
                    config = running.pop(reference)
                    watcher.ended(config, _note_end(swept, config, root, ray, reference))
        except KeyboardInterrupt:
            swept.interrupted = True
            for reference in running:
                ray.cancel(reference, force=True)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"sweeps on a cluster need Ray: {how_to_install('ray')}.") from error
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """To the cluster named, or one of this machine that ends with the sweep; one already connected to is left so."""
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    options = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(f"there is no Ray cluster at {address}: {str(error).splitlines()[0]}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _train(
    text: str, root: str | None, data_dir: str | Path | None, threads: int, begun: _Files
) -> tuple[str, str | _Files]:
    """The task: ("done", the run directory if `root` is None), or ("busy" | "error", a sentence)."""
    import torch

    from hush.data import cache_directory
    from hush.sparse import keep_freed_memory
    from hush.train import RunBusyError, train

    keep_freed_memory()
    torch.set_num_threads(threads)
    config = TrainConfig.from_json(text)
    try:
        if root is not None:
            train(config, root, data_dir=data_dir, progress=False, tensorboard=False)
            return "done", ""
        # The same place each time: begun again on this machine, the run goes on from what is there.
        scratch = cache_directory() / "runs"
        if begun and not (scratch / config.name).exists():
            _unpack(begun, scratch / config.name)
        run = train(config, scratch, data_dir=data_dir, progress=False, tensorboard=False)
        files = _pack(run.directory)
        shutil.rmtree(run.directory)
        return "done", files
    except RunBusyError as error:
        return "busy", str(error)
    except ValueError as error:  # hush's own errors are sentences
        return "error", str(error)


def _note_end(swept: Swept, config: TrainConfig, root: Path, ray: Any, reference: Any) -> str | None:
    """Put an ended task into `swept`; its sentence if it failed."""
    try:
        end, got = ray.get(reference)
        if end == "done" and isinstance(got, dict):
            _unpack(got, root / config.name)
    except ray.exceptions.RayTaskError as error:  # a Python error that is not hush's own
        end, got = "error", str(error.cause or error).strip().splitlines()[-1]
    except ray.exceptions.RayError as error:
        end, got = "error", f"its worker died too often: {str(error).strip().splitlines()[0]}"
    except OSError as error:
        end, got = "error", f"cannot write to {root / config.name}: {error.strerror or error}."
    if end == "done" and not is_done(config, root):
        end, got = (
            "error",
            f"it was trained, but the cluster does not share {root}: ask to collect the runs.",
        )
    if end == "done":
        swept.done.append(config.name)
        return None
    if end == "busy":
        swept.busy.append(config.name)
    else:
        swept.errors[config.name] = str(got)
    return str(got)


def _pack(directory: Path) -> _Files:
    """The files of a run directory; none where it is not there yet."""
    if not directory.is_dir():
        return {}
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file() and file.name[0] != "."}


def _unpack(files: _Files, directory: Path) -> None:
    """Write a run directory, each file by one rename and the result last: with it the run is done."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == "result.json"):
        if Path(name).name != name:
            raise ValueError(f"a run directory has no file {name!r}.")
        replace_bytes(directory / name, files[name])
