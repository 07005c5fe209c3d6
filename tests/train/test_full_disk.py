"""A disk that is full and a directory that cannot be written: one sentence, earlier results intact, and it goes on."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hush.train import RunError, TrainConfig, train

TINY = TrainConfig(depth=2, width=8, epochs=2, batch=64, v_prime=0.7)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to write beyond so many bytes of a file, as it does when the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.iterdir()) if file.is_file()}


def test_a_full_disk(tmp_path: Path) -> None:
    done = train(TINY, tmp_path, progress=False, tensorboard=False)
    before = contents(done.directory)
    other = TINY.with_seed(1)
    # Too little for the config; for the checkpoint; for the last table and what comes after it.
    for room in (100, 3000, len(before["last.ckpt"]) - 1, len(before["layers.csv"]) - 1):
        with (
            files_of_at_most(room),
            pytest.raises(RunError, match="what was finished before is intact, and the same call goes on"),
        ):
            train(other, tmp_path, progress=False, tensorboard=False)
        assert not (tmp_path / other.name / "result.json").exists()
        assert contents(done.directory) == before
    finished = train(other, tmp_path, progress=False, tensorboard=False)
    undisturbed = train(other, tmp_path / "elsewhere", progress=False, tensorboard=False)
    assert finished.result is not None
    assert undisturbed.result is not None
    clock = {"seconds": 0.0, "started": None, "ended": None}
    assert replace(finished.result, **clock) == replace(undisturbed.result, **clock)
    assert finished.losses["loss"].tolist() == undisturbed.losses["loss"].tolist()
    leftovers = {file.name for file in finished.directory.iterdir()} - set(before)
    assert not leftovers


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write to .*file.*: what was finished before is intact"):
        train(TINY, tmp_path / "file", progress=False, tensorboard=False)
