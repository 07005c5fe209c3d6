"""Sweeps on one machine: what is skipped, gone on with and given up, by workers that only pretend to train."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import hush.reproduce.local_executor
from hush.reproduce.sweep import run_sweep
from hush.train import TrainConfig

PRETEND = Path(__file__).parent / "pretend.py"
TINY = TrainConfig(depth=2, width=8, epochs=6, batch=32, lr=0.05, warmup=0, v_prime=0.7)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The root of sweeps whose workers only pretend; `PRETEND`/seed is the run directory of that seed."""
    links = tmp_path / "by_seed"
    links.mkdir()
    root = tmp_path / "runs"
    for seed in range(60):
        (root / TINY.with_seed(seed).name).mkdir(parents=True)
        (links / str(seed)).symlink_to(root / TINY.with_seed(seed).name)
    monkeypatch.setenv("PRETEND", str(links))
    monkeypatch.setattr(hush.reproduce.local_executor, "WORKER", (sys.executable, str(PRETEND)))
    return root


def starts(root: Path) -> list[int]:
    file = root / "starts"
    return [int(line.split()[0]) for line in file.read_text().splitlines()] if file.exists() else []


def seeds(*numbers: int) -> list[TrainConfig]:
    return [TINY.with_seed(seed) for seed in numbers]


def test_what_is_done_is_skipped_and_nothing_runs_twice(pretend: Path) -> None:
    (pretend / TINY.with_seed(20).name / "result.json").touch()
    swept = run_sweep(seeds(0, 20, 10, 0, 30), pretend, workers=2, progress=False)
    assert sorted(swept.done) == sorted(c.name for c in seeds(0, 10, 30))
    assert swept.skipped == [TINY.with_seed(20).name]
    assert sorted(starts(pretend)) == [0, 10, 30]
    again = run_sweep(seeds(0, 20, 10, 0, 30), pretend, workers=2, progress=False)
    assert not again.done
    assert len(again.skipped) == 4
    assert len(starts(pretend)) == 3


def test_an_error_is_reported_and_stops_no_other(pretend: Path, capfd: pytest.CaptureFixture[str]) -> None:
    swept = run_sweep(seeds(1, 2, 0), pretend, workers=1)
    assert swept.errors == {TINY.with_seed(1).name: "there is no room for this run."}
    assert swept.busy == [TINY.with_seed(2).name]
    assert swept.done == [TINY.with_seed(0).name]
    assert swept.sentences()[0] == "Runs: 1 trained, 0 done before, 2 not trained."
    shown = capfd.readouterr().err
    assert f"0/3 {TINY.with_seed(1).name}: there is no room for this run." in shown
    assert f"1/3 {TINY.with_seed(0).name}: epoch 0/6" in shown


def test_a_killed_worker_begins_again_but_not_for_ever(pretend: Path) -> None:
    swept = run_sweep(seeds(3, 4), pretend, workers=2, retries=2, progress=False)
    assert swept.done == [TINY.with_seed(3).name]
    assert "killed by SIGKILL" in swept.errors[TINY.with_seed(4).name]
    assert sorted(starts(pretend)) == [3, 3, 4, 4, 4]


def test_a_worker_trains_one_run_after_another(pretend: Path) -> None:
    swept = run_sweep(seeds(0, 1, 10, 6, 20, 30), pretend, workers=1, progress=False)
    assert len(swept.done) == 4
    assert swept.errors[TINY.with_seed(1).name] == "there is no room for this run."
    assert swept.errors[TINY.with_seed(6).name] == "RuntimeError: nobody thought of this"
    first, *others = (line.split()[3] for line in (pretend / "starts").read_text().splitlines())
    assert others[:3] == [first] * 3  # an error ends the run, not its worker
    assert others[3:] == [others[3]] * 2  # a bug ends the worker too
    assert others[3] != first


def test_workers_share_the_cores(pretend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    run_sweep(seeds(0, 10, 20), pretend, workers=2, progress=False)
    run_sweep(seeds(30), pretend, workers=16, progress=False)  # one run is there for all the cores
    assert [line.split()[1:3] for line in (pretend / "starts").read_text().splitlines()] == [["4", "4"]] * 3 + [
        ["8", "8"]
    ]


def test_ctrl_c_ends_the_workers(pretend: Path) -> None:
    def interrupt() -> None:
        while not (pretend / "waiting5").exists():
            time.sleep(0.02)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    swept = run_sweep(seeds(5, 0), pretend, workers=1, progress=False)
    assert swept.interrupted
    assert "the same command goes on" in swept.sentences()[-1]
    assert starts(pretend) == [5]


def test_workers_end_when_the_sweep_is_killed(pretend: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import hush.reproduce.local_executor as local\n"
        "from hush.reproduce.sweep import run_sweep; from hush.train import TrainConfig\n"
        f"local.WORKER = (sys.executable, {str(PRETEND)!r})\n"
        f"config = TrainConfig.from_json({TINY.with_seed(15).to_json()!r})\n"
        f"run_sweep([config], {str(pretend)!r}, progress=False)"
    )
    sweep = subprocess.Popen([sys.executable, "-c", code])
    _wait_for(pretend / "waiting15")
    sweep.kill()
    sweep.wait()
    _wait_for(pretend / "ended15")


def _wait_for(file: Path, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not file.exists():
        assert time.monotonic() < end, f"{file.name} did not appear"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"executor": "slurm"}, "unknown executor 'slurm'; there are local, ray"),
        ({"workers": 0}, "workers must be at least 1"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        run_sweep([TINY], tmp_path, **arguments)  # type: ignore[arg-type]
