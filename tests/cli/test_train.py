import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hush.cli import main
from hush.cli.train import say_before
from hush.train import TrainConfig

MAIN = "from hush.cli import main; main()"
WITHOUT_LIGHTNING = "import sys; sys.modules['lightning'] = None; " + MAIN
SMALL = ["train", "--depth", "3", "--width", "20", "--v-prime", "0.7", "--threads", "1", "--no-progress"]


def hush(*words: str, cwd: Path, code: str = MAIN, **environment: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-c", code, *words]
    return subprocess.run(call, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment})


@pytest.mark.parametrize("command", [["train", "--epochs", "1"], ["demo"], ["reproduce", "fig5"]])
def test_a_missing_extra_is_one_sentence(command: list[str], tmp_path: Path) -> None:
    done = hush(*command, cwd=tmp_path, code=WITHOUT_LIGHTNING)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "hush: training needs Lightning: pip install -e '.[train]' in a checkout, or pip install 'hush-sparse[train]'."
    )


def in_process(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The exit code and what is on stderr, without the time another process takes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUSH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["hush", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--depth", "0"], "depth must be a whole number of at least 1, got 0."),
        (["--depth", "1000000"], "depth must be at most 10,000, got 1,000,000."),
        (["--width", "1000000", "--v-prime", "0.7"], "this machine has"),
        (["--width", "1"], "width must be a whole number of at least 2, got 1."),
        (["--lr", "nan"], "lr must be positive and finite, got nan."),
        (["--lr", "quick"], "Invalid value for '--lr'"),
        (["--epochs", "0"], "epochs must be a whole number of at least 1, got 0."),
        (["--data", "imagenet"], "data must be one of digits, mnist, fashion_mnist, cifar10, text, got 'imagenet'."),
        (["--threads", "0"], "Invalid value for '--threads'"),
        (["--seed", "99999999999999999999"], "seed must be at most"),
        (["--optimiser", "sgd"], "No such option"),
        (["--shrink", "3", "--v-prime", "0.7"], "do not fall into squares of 3 pixels"),
        (["--subset", "99999", "--v-prime", "0.7"], "got a subset of 99999"),
        (["--scored", "99999", "--v-prime", "0.7"], "held-out images, got 99999 to be scored on."),
        (["--scored", "0", "--v-prime", "0.7"], "scored must be a whole number of at least 1, got 0."),
        (["--data", "mnist", "--data-dir", "nowhere", "--v-prime", "0.7"], "nowhere is not a directory"),
        (["--root", "file", "--v-prime", "0.7"], "cannot write to file"),
        (["--root", "/proc/nothing", "--v-prime", "0.7"], "cannot write to /proc/nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_values_are_one_sentence_and_leave_nothing(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    code, said = in_process(["train", *words], tmp_path, monkeypatch, capsys)
    assert code == 2
    assert sentence in said
    assert said.startswith("hush: ")
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_a_broken_run_directory_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TrainConfig(depth=3, width=20, v_prime=0.7)
    directory = tmp_path / "runs" / config.name
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(config.to_json())
    (directory / name).write_text("{")
    code, said = in_process(SMALL, tmp_path, monkeypatch, capsys)
    assert code == 2
    assert f"{name} is damaged" in said
    assert said.count("\n") == 1


def test_what_is_chosen_is_printed_and_a_second_call_only_reads(tmp_path: Path) -> None:
    first = hush(*SMALL, "--epochs", "2", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    lines = first.stdout.splitlines()
    assert lines[0].startswith("Before training: V′(q*) = 0.70")
    assert lines[1] == "sgd, learning rate 0.03 (cosine, warm-up over 8 steps), batch 32, 2 epochs of 41 steps."
    assert lines[2].startswith("At the pace of these 10 steps")
    assert lines[3].startswith("After training: ")
    second = hush(*SMALL, "--epochs", "2", cwd=tmp_path)
    assert second.stdout.splitlines()[0].startswith("Finished already (ended 20")
    assert second.stdout.splitlines()[1:] == lines[3:]


def test_a_deep_network_is_told_what_it_takes_before_it_starts() -> None:
    said: list[str] = []
    say_before(TrainConfig(depth=100, width=300, v_prime=0.7, epochs=3), said.append)
    assert said[2] == "100 layers take long: 123 steps. The first of them will tell how long."
    assert said[3].startswith("Measured with the recipe: 100 layers of 300 units, crelu with 85 % zeros, ")
    assert said[3].endswith("The run may do no more than leave chance.")
    say_before(TrainConfig(depth=1000, width=300, v_prime=0.5, epochs=3), said.append)
    assert said[-1].endswith("Nothing of 1000 layers has been measured: the run may do no more than leave chance.")
    say_before(TrainConfig(depth=50, width=20, v_prime=0.5, arch="cnn"), said.append)
    assert said[-1] == "The recipe has not been measured on a CNN: the run may do no more than leave chance."


def test_a_bad_verdict_says_that_a_linear_start_is_not_part_of_it() -> None:
    drawn, linear = list[str](), list[str]()
    for start, said in (("drawn", drawn), ("linear", linear)):
        say_before(TrainConfig(data="mnist", depth=100, activation="cst", v_prime=0.9, start=start), said.append)
    assert "it will not train" in drawn[0]
    assert drawn[0] == linear[0]
    assert linear[1].startswith("That is said of the network as it is drawn.")
    assert not any(line.startswith("That is said") for line in drawn)


def test_ctrl_c_is_one_sentence_at_any_moment(tmp_path: Path) -> None:
    # Once while torch is being loaded, once while it trains.
    for moment in ("Before training", "At the pace"):
        call = [sys.executable, "-u", "-c", MAIN, *SMALL, "--epochs", "100000"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(call, cwd=tmp_path, **pipes) as process:
            assert process.stdout is not None
            while not process.stdout.readline().startswith(moment):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert said.startswith("hush: stopped")
        assert said.count("\n") == 1
