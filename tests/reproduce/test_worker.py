"""What a worker makes of a run that it cannot train."""

from dataclasses import replace
from pathlib import Path

import pytest

from hush._files import try_lock
from hush.reproduce.worker import BUSY, FAILED, train_one
from hush.train import TrainConfig

TINY = TrainConfig(depth=2, width=8, epochs=1, v_prime=0.7)


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / TINY.name).mkdir()
    with (tmp_path / TINY.name / ".lock").open("ab") as lock:
        assert try_lock(lock)
        assert train_one(TINY.to_json(), str(tmp_path), 1, None) == BUSY
    assert "another process is training" in capsys.readouterr().err


def test_a_run_that_cannot_be_trained_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(TINY, subset=5000)
    assert train_one(config.to_json(), str(tmp_path), 1, None) == FAILED
    assert "images to learn from, got a subset of 5000." in capsys.readouterr().err
    assert train_one("{}}", str(tmp_path), 1, None) == FAILED
    assert "this is not a training config" in capsys.readouterr().err
