"""Sweeps on a Ray cluster: nothing is lost or run twice when a worker is killed. `make test-ray` installs Ray."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hush.reproduce.sweep import Cluster, run_sweep
from hush.train import TrainConfig, load_run, train

TINY = TrainConfig(depth=2, width=8, epochs=12, batch=32, lr=0.05, warmup=0, v_prime=0.7)


def test_without_ray_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match="sweeps on a cluster need Ray: pip install -e '.\\[ray\\]'"):
        run_sweep([TINY], tmp_path, executor="ray", progress=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray is not installed; `make test-ray` installs it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUSH_CACHE", str(tmp_path_factory.mktemp("cache")))  # where collected runs are trained
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        yield
        ray.shutdown()


@pytest.mark.filterwarnings("default")
def test_a_worker_killed_under_way(cluster: None, tmp_path: Path) -> None:
    configs = [TINY.with_seed(seed) for seed in range(3)]
    killed: list[int] = []

    def disturb() -> None:
        file = tmp_path / "wild" / configs[0].name / "metrics.csv"
        while not file.exists():
            time.sleep(0.02)
        killed.extend(_kill_the_worker_in(tmp_path / "wild" / configs[0].name))

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    swept = run_sweep(configs, tmp_path / "wild", executor="ray", progress=False)
    thread.join(10.0)
    assert len(killed) == 1
    assert not swept.errors
    assert sorted(swept.done) == sorted(c.name for c in configs)
    for config in configs:
        wild, calm = load_run(tmp_path / "wild" / config.name), train(config, tmp_path / "calm", progress=False)
        assert wild.result is not None
        assert calm.result is not None
        assert replace(wild.result, seconds=0.0) == replace(calm.result, seconds=0.0)
        assert wild.losses["loss"].tolist() == calm.losses["loss"].tolist()
        assert wild.metrics["epoch"].tolist() == list(range(1, TINY.epochs + 1))
    again = run_sweep(configs, tmp_path / "wild", executor="ray", progress=False)
    assert len(again.skipped) == 3
    assert not again.done


@pytest.mark.filterwarnings("default")
def test_runs_sent_back_and_errors(cluster: None, tmp_path: Path) -> None:
    short = replace(TINY, epochs=2)
    impossible = replace(short, subset=5000)
    swept = run_sweep([short, impossible], tmp_path, executor="ray", cluster=Cluster(collect=True), progress=False)
    assert swept.done == [short.name]
    assert "images to learn from, got a subset of 5000." in swept.errors[impossible.name]
    run = load_run(tmp_path / short.name)
    assert run.result is not None
    assert run.metrics["epoch"].tolist() == [1, 2]
    assert (run.directory / "checkpoint").is_file()


def _kill_the_worker_in(directory: Path) -> list[int]:
    """Kill -9 the process that holds the lock of a run directory."""
    lock = (directory / ".lock").stat().st_ino
    with open("/proc/locks", encoding="utf-8") as file:
        found = [int(line.split()[4]) for line in file if line.split()[5].endswith(f":{lock}")]
    for pid in found:
        assert "ray::" in subprocess.run(["ps", "-p", str(pid), "-o", "args="], capture_output=True, text=True).stdout
        os.kill(pid, signal.SIGKILL)
    return found
