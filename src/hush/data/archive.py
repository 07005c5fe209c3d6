"""Tar archives: the files of a data set are picked out by name, checked on the way, and nothing else is unpacked."""

import gzip
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from hush.data.catalogue import DataSet
from hush.data.checksum import write_verified
from hush.data.errors import DataError

__all__ = ["extract"]


def extract(archive: Path, entry: DataSet, target: Path) -> None:
    """Write every file of `entry` found in `archive`, zipped or not and in whatever folder, into `target`.

    Members are copied as streams to names of our own, so no path in the archive can lead out of `target`.

    Raises:
        DataError: if the archive is damaged, lacks a file or has a wrong one.
    """
    wanted = {file.name: file for file in entry.files}
    try:
        with tarfile.open(archive, "r:*") as members:
            for member in members:
                leaf = PurePosixPath(member.name).name
                file = wanted.get(leaf.removesuffix(".gz"))
                source = members.extractfile(member) if file is not None and member.isfile() else None
                if file is None or source is None:
                    continue
                write_verified(source, f"{archive}:{member.name}", file, target / file.name)
                del wanted[file.name]
                if not wanted:
                    return
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{archive} is a truncated or damaged archive.") from error
    raise DataError(f"{archive} has no {', '.join(wanted)}.")
