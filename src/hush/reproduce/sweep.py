"""A sweep: a list of configs, each becoming a run directory; what is done is skipped, what is not goes on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hush.train.config import TrainConfig
from hush.train.machine import usable_cores

__all__ = ["EXECUTORS", "Cluster", "Swept", "check_root", "is_done", "pending", "run_sweep"]

EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and what each run asks of it.

    Arguments:
        address: of the cluster; without it (and without RAY_ADDRESS) one of this machine is started for the sweep.
        cpus, gpus: of each run. A run has as many threads as CPUs.
        collect: the machines do not share the root: they train where they are and send the run directories back.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float = 0.0
    collect: bool = False


@dataclass
class Swept:
    """What came of a sweep, by run name. `errors` has a sentence for each run that could not be trained."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def sentences(self) -> list[str]:
        """What to tell about it: the sum, then everything that needs attention."""
        left = len(self.errors) + len(self.busy)
        said = [f"Runs: {len(self.done)} trained, {len(self.skipped)} done before, {left} not trained."]
        said += [f"{name}: {sentence}" for name, sentence in self.errors.items()]
        said += [f"{name}: another process is training it." for name in self.busy]
        if self.interrupted:
            said.append("Stopped; the same command goes on with what is left.")
        return said


class Watcher(Protocol):
    """Who is told how a sweep goes."""

    def started(self, config: TrainConfig) -> None: ...
    def ended(self, config: TrainConfig, error: str | None) -> None: ...
    def tick(self) -> None: ...


def check_root(root: str | Path, *, must_exist: bool = False) -> None:
    """Raise a ValueError where no run directory can be read from `root`, or written to it, before hours are spent."""
    root = Path(root)
    if root.exists() and not root.is_dir():
        raise ValueError(f"{root} is no folder; give the one that holds the run directories, or a new one.")
    if must_exist and not root.exists():
        raise ValueError(f"there is no folder {root} to read runs from; train them first, or give another --root.")


def is_done(config: TrainConfig, root: str | Path) -> bool:
    return (Path(root) / config.name / "result.json").is_file()


def pending(configs: Iterable[TrainConfig], root: str | Path) -> list[TrainConfig]:
    """What is left to train: each run once, in the given order."""
    once = {config.name: config for config in configs}
    return [config for config in once.values() if not is_done(config, root)]


def run_sweep(
    configs: Sequence[TrainConfig],
    root: str | Path = "runs",
    *,
    executor: str = "local",
    workers: int | None = None,
    data_dir: str | Path | None = None,
    cluster: Cluster | None = None,
    retries: int = 3,
    progress: bool = True,
) -> Swept:
    """Train every config that has no result yet under `root`.

    A run that fails with an error is reported at the end and does not stop the others; one whose process is killed is
    begun again, from its last whole epoch, up to `retries` times. Ctrl-C, like a kill at any moment, leaves everything
    to go on with.

    Arguments:
        executor: local (processes of this machine) or ray (tasks of a Ray cluster).
        workers: runs at a time, each on its share of the cores; by default one for each core (local), or as many as
            the cluster has room for (ray).
        data_dir: where your own copy of the data is, on every machine that trains.
        cluster: the Ray cluster, and what a run asks of it.
        progress: show live what is running.

    Raises:
        DataError: if the data cannot be had here (executor local).
        ValueError: if the executor is unknown or its extra is not installed.
    """
    if executor not in EXECUTORS:
        raise ValueError(f"unknown executor {executor!r}; there are {', '.join(EXECUTORS)}.")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}.")
    check_root(root)
    todo = pending(configs, root)
    names = {config.name for config in todo}
    swept = Swept(skipped=sorted({c.name for c in configs} - names))
    if not todo:
        return swept
    run: Callable[[Watcher], None]
    if executor == "local":
        from hush.reproduce.local_executor import run_local

        at_once = min(workers or usable_cores(), len(todo))

        def run(watcher: Watcher) -> None:
            run_local(todo, Path(root), swept, watcher, at_once, data_dir, retries)
    else:
        from hush.reproduce.ray_executor import run_ray

        def run(watcher: Watcher) -> None:
            run_ray(todo, Path(root), swept, watcher, workers, data_dir, cluster or Cluster(), retries)

    from hush.reproduce.progress import watching

    with watching(todo, Path(root), progress) as watcher:
        run(watcher)
    return swept
