"""`hush reproduce`: the tables as a user asks for them; one sweep is real, and its worker is killed on the way."""

import csv
import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hush.cli.reproduce import app
from hush.reproduce import experiment, read_results
from hush.reproduce.presets import preset
from hush.reproduce.second_failure import second_failure_configs
from hush.train import load_run, train
from tests.reproduce.runs import write_run


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_the_smoke_preset_with_a_worker_killed_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    root, arguments = tmp_path / "runs", ("table-shallow-unclipped", "--preset", "smoke", "--set", "epochs=8")
    first, second = experiment("table-shallow-unclipped", "smoke", given={"epochs": 8}).configs
    killed: list[int] = []

    def disturb() -> None:
        while not (root / first.name / "metrics.csv").exists():
            time.sleep(0.01)
        time.sleep(random.Random().uniform(0.0, 0.1))
        killed.extend(_kill_a_worker())

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    code, printed = run(*arguments, "--root", str(root), "--json")
    thread.join(1.0)
    assert code == 0
    assert len(killed) == 1
    assert sorted(path.name for path in root.iterdir()) == sorted([first.name, second.name])
    (table,) = json.loads(printed)
    accuracies = {row["name"]: row["accuracy"] for row in table["rows"] if row["accuracy"]}
    for name, config in (("shifted_relu-0.9", first), ("soft_threshold-0.9", second)):
        calm = train(config, tmp_path / "calm", progress=False, tensorboard=False)
        assert calm.result is not None
        assert accuracies[name] == [calm.result.test_accuracy]
        wild = load_run(root / config.name)
        assert wild.losses["loss"].tolist() == calm.losses["loss"].tolist()
        assert wild.metrics["epoch"].tolist() == list(range(1, 9))


def _kill_a_worker() -> list[int]:
    """Kill -9 the first of the workers that this process has started."""
    listed = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True)
    found = [int(line.split()[0]) for line in listed.stdout.splitlines() if "hush.reproduce.worker" in line]
    for pid in found[:1]:
        os.kill(pid, signal.SIGKILL)
    return found[:1]


def test_results_are_written_into_a_directory(tmp_path: Path) -> None:
    made = experiment("table1", "quick", part="cnn", rows="8")
    write_run(tmp_path / "runs", made.configs[0], 0.45, 0.6)
    results = tmp_path / "results"
    asked = ("--part", "cnn", "--rows", "8", "--root", str(tmp_path / "runs"), "--show")
    assert run("table1", *asked, "--out", str(results))[0] == 0
    assert sorted(file.name for file in results.iterdir()) == ["table1_cnn.csv", "table1_cnn.md"]
    records = list(csv.DictReader((results / "table1_cnn.csv").read_text().splitlines()))
    assert (records[7]["accuracy_mean"], records[7]["outcome"]) == ("0.45000", "held")
    assert "| 0.450 (1) | 0.69 |" in (results / "table1_cnn.md").read_text()
    assert run("table1", *asked, "--out", str(results / "t.tex"))[0] == 0
    assert r"\begin{tabular}" in (results / "t.tex").read_text()
    assert read_results(made, tmp_path / "runs").agreeing == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table1", "--part", "rnn"), "table1 has no part 'rnn'; it has dnn, cnn"),
        (("table1", "--preset", "fast"), "unknown preset 'fast'"),
        (("table-shallow-clipped", "--rows", "25"), "there is no row 25: the table has rows 1 to 24"),
        (("table-shallow-clipped", "--set", "lr=-1"), "lr must be positive"),
        (("table-shallow-clipped", "--format", "html"), "unknown format 'html'"),
        (("design-table", "--out", "/dev/null/x.md"), "cannot write /dev/null/x.md: (Not a directory|File exists)"),
        (("table1", "--out", "/dev/null/x.md"), "cannot write /dev/null/x.md: (Not a directory|File exists)"),
        (("table1", "--rows", "1-99999999999"), "there is no row 1-99999999999: the table has rows 1 to 33"),
        (("table1", "--seeds", "1000000000"), "seeds must lie between 1 and 10000, got 1000000000"),
        (("second-failure-mode", "--seeds", "99999999999"), "seeds must lie between 1 and 10000, got 99999999999"),
        (("table1", "--show", "--root", "/nowhere/runs"), "there is no folder /nowhere/runs to read runs from"),
        (("second-failure-mode", "--show", "--root", "/nowhere"), "there is no folder /nowhere to read runs from"),
        (("table1", "--preset", "smoke", "--root", "/dev/null"), "/dev/null is no folder"),
        (("table1", "--executor", "slurm"), "unknown executor 'slurm'; there are local, ray"),
    ],
)
def test_wrong_words_are_one_sentence(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(*arguments)


def test_the_curves_of_the_second_failure_mode(tmp_path: Path) -> None:
    configs = second_failure_configs(preset("quick", "second"))
    assert {(c.activation, c.sparsity, c.clip) for c in configs} == {("cst", 0.85, 0.81), ("cst", 0.9, 0.76)}
    assert len(configs) == 10
    for config in configs[:3]:
        write_run(tmp_path, config, 0.4, 0.85)
    out = tmp_path / "second_failure_mode.csv"
    assert run("second-failure-mode", "--root", str(tmp_path), "--show", "--out", str(out))[0] == 0
    remark, *lines = out.read_text().splitlines()
    assert remark.startswith("# The runs do not record when and where; their results were last written on ")
    records = list(csv.DictReader(lines))
    assert list(records[0]) == ["sparsity", "clip", "seed", "step", "loss", "test_accuracy"]
    assert [(r["sparsity"], r["clip"], r["seed"], r["step"], r["loss"]) for r in records[:3]] == [
        ("0.85", "0.81", "0", "0", "2.4"),
        ("0.85", "0.81", "0", "10", "2"),
        ("0.85", "0.81", "0", "20", "1.5"),
    ]
    assert [r["seed"] for r in records[::3]] == ["0", "1", "0"]
    printed = json.loads(run("second-failure-mode", "--root", str(tmp_path), "--show", "--json")[1])
    assert [curve["result"]["test_accuracy"] for curve in printed] == [0.4] * 3
