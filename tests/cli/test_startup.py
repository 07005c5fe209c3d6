"""What a command loads before it does anything: the door must open at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hush.train import Result, TrainConfig
from tests.train.test_result import OLD

HEAVY = ("torch", "lightning", "matplotlib", "scipy.stats", "scipy.optimize", "sklearn", "tensorboard", "pandas")
CODE = """
import json, sys
from hush.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
print("\\n" + json.dumps([code, [name for name in sys.argv[0].split(",") if name in sys.modules]]))
"""


def loaded(command: list[str], modules: tuple[str, ...], cwd: Path) -> tuple[list[str], str]:
    """Which of `modules` the command has loaded when it ends, and what it printed."""
    code = CODE.replace("sys.argv[0].split", f"{','.join(modules)!r}.split")
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=cwd, check=True)
    printed, _, last = done.stdout.rstrip().rpartition("\n")
    end, found = json.loads(last)
    assert end == 0, done.stderr
    return found, printed


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    found, printed = loaded(["--help"], (*HEAVY, "numpy", "hush.theory", "hush.train.config"), tmp_path)
    assert found == []
    for command in ("demo", "design", "diagnose", "explore", "report", "train", "data", "bench", "reproduce"):
        assert f" {command} " in printed


@pytest.mark.parametrize(
    "command",
    [
        ["design", "crelu", "--sparsity", "0.85", "--width", "300", "--depth", "100"],
        ["train", "--help"],
        ["data", "list"],
    ],
    ids=" ".join,
)
def test_what_needs_no_torch_loads_none(command: list[str], tmp_path: Path) -> None:
    assert loaded(command, HEAVY, tmp_path)[0] == []


def test_a_finished_run_is_recognised_before_anything_is_loaded(tmp_path: Path) -> None:
    config = TrainConfig(depth=4, width=40, v_prime=0.7)
    directory = tmp_path / "runs" / config.name
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(config.to_json())
    (directory / "result.json").write_text(Result.from_json(OLD).to_json())
    command = ["train", "--depth", "4", "--width", "40", "--v-prime", "0.7"]
    found, printed = loaded(command, HEAVY, tmp_path)
    assert found == []
    assert printed.splitlines()[0] == (
        f"Finished already (when was not recorded); remove {Path('runs') / config.name} to train it again."
    )
    assert "After training: failed: test accuracy 0.169" in printed


def test_training_loads_neither_what_draws_nor_what_it_does_not_use(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    command = ["train", "--depth", "3", "--width", "20", "--v-prime", "0.7", "--epochs", "1", "--subset", "64"]
    unused = ("matplotlib", "scipy.signal", "scipy.optimize", "sklearn", "tensorboard")
    assert loaded([*command, "--no-progress", "--threads", "1"], unused, tmp_path)[0] == []


def test_the_real_modules_are_there_for_whoever_wants_them_afterwards(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    code = """
from hush.cli._lightning import load_lightning
load_lightning()
import matplotlib.pyplot as plt, scipy.signal, torchmetrics, torch
assert matplotlib.__file__ and plt.figure and scipy.signal.windows.hann(4).size == 4
metric = torchmetrics.MeanMetric(); metric.update(torch.tensor(2.0)); assert float(metric.compute()) == 2.0
"""
    environment = {**os.environ, "MPLBACKEND": "agg"}
    code = code.replace("import matplotlib.pyplot", "import matplotlib, matplotlib.pyplot")
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=tmp_path, env=environment)
