"""The cache: one folder per data set, whose files arrive whole or not at all.

A file is written in a staging folder beside its place, checked there, and moved with one rename; readers therefore see
the old file, no file or the right file. Fetchers take turns by a lock, which the system releases when a process dies.
"""

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hush._cache_dir import cache_dir
from hush._files import try_lock
from hush.data.catalogue import DataSet
from hush.data.errors import DataError

__all__ = ["cache_directory", "place", "staging", "writing"]

_log = logging.getLogger("hush.data")
_STAGING = ".fetch-"
_POLL_SECONDS = 0.2


def cache_directory() -> Path:
    """The folder `data` of hush's cache: $HUSH_CACHE, else hush in $XDG_CACHE_HOME or ~/.cache."""
    return cache_dir() / "data"


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Alone in `folder`: made if need be, locked, and free of what killed fetchers left.

    Raises:
        DataError: if the folder cannot be written, the disk is full, and the like.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("ab") as lock:
            # Without a lock, what looks left over may belong to another fetcher at work.
            if _wait_for(lock, folder):
                for leftover in folder.glob(f"{_STAGING}*"):
                    shutil.rmtree(leftover, ignore_errors=True)
            yield
    except OSError as error:
        raise DataError(
            f"cannot write to the cache {folder} ({error.strerror or error}): "
            "set HUSH_CACHE to a directory with room that you may write to."
        ) from error


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A scratch folder inside `folder`, so that a move out of it is one rename; removed at the end."""
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=folder, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


def place(scratch: Path, entry: DataSet, folder: Path) -> None:
    """Move the checked files of `entry` from `scratch` into `folder`, each by one rename.

    The bytes go to disk before the name does: after a power cut a file is there whole or not at all.
    """
    for file in entry.files:
        staged = scratch / file.name
        with staged.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(staged, folder / file.name)


def _wait_for(lock: IO[bytes], folder: Path) -> bool:
    """Take the lock, telling once that another process has it; False where the file system has no locks.

    Some network file systems have none. Staging and renames alone keep the files right there: two fetchers then do the
    work twice, and the same bytes land in the same place.
    """
    told = False
    try:
        while not try_lock(lock):
            if not told:
                _log.warning("another process is fetching into %s; waiting for it.", folder)
                told = True
            time.sleep(_POLL_SECONDS)
    except OSError:
        return False
    return True
