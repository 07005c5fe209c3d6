"""A directory the user names: which of the usual layouts it has, and where the files are in it.

MNIST/raw/train-images-idx3-ubyte[.gz]     torchvision's root
raw/…, cifar-10-batches-py/…               one level further in
mnist/…                                    a cache of hush
train-images-idx3-ubyte[.gz]               the bare files
cifar-10-python.tar.gz                     the archive as published
"""

from collections.abc import Iterator
from dataclasses import dataclass
from os.path import isdir, isfile
from pathlib import Path

from hush.data.catalogue import DataSet
from hush.data.errors import DataError

__all__ = ["Found", "search"]


@dataclass(frozen=True)
class Found:
    """Where the files seem to be, not yet verified.

    Attributes:
        directory: the folder that holds them.
        files: a path for every file of the data set, in its order; empty if all there is, is the archive.
    """

    directory: Path
    files: tuple[Path, ...] = ()
    archive: Path | None = None


def search(entry: DataSet, directory: Path) -> Found | None:
    """The first layout that fits, or None if there is nothing of `entry` below `directory`.

    Raises:
        DataError: if `directory` is none, or some of the files are there and others missing.
    """
    if not isdir(directory):
        raise DataError(f"{directory} is not a directory that can be read.")
    archive = directory / entry.archive if entry.archive else None
    if archive is not None and not isfile(archive):
        archive = None
    for folder in _folders(entry, directory):
        paths = [_first(folder / file.name, folder / f"{file.name}.gz") for file in entry.files]
        present = tuple(path for path in paths if path is not None)
        if len(present) == len(paths):
            return Found(folder, present)
        # Half a folder beside the whole archive is an unpacking that was cut short: the archive is the better copy.
        if present and archive is None:
            missing = [file.name for file, path in zip(entry.files, paths, strict=True) if path is None]
            raise DataError(f"{folder} has only a part of {entry.name}: there is no {', '.join(missing)}.")
    return Found(directory, archive=archive) if archive else None


def _folders(entry: DataSet, directory: Path) -> Iterator[Path]:
    for folder in entry.folders:
        yield directory / folder
        yield directory / Path(folder).name
    yield directory / entry.name
    yield directory


def _first(*paths: Path) -> Path | None:
    return next((path for path in paths if isfile(path)), None)
