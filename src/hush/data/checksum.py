"""Verified bytes: a file is unzipped, measured and hashed before anything may look inside it.

Whoever wants the content gets the very bytes that were hashed, so nothing can change between the check and the use.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hush.data.catalogue import DataFile, identify
from hush.data.errors import DataError

__all__ = ["copy_verified", "read_verified", "verify", "write_verified"]

_CHUNK = 1 << 20


def read_verified(path: Path, file: DataFile) -> bytearray:
    """The unzipped content of `path`, which must be `file`.

    Raises:
        DataError: naming the path, if it cannot be read or its bytes are not those of `file`.
    """
    content = bytearray()
    for chunk in _verified(path, file):
        content += chunk
    return content


def verify(path: Path, file: DataFile) -> None:
    """Raise `DataError` unless `path` holds exactly `file`, zipped or not."""
    for _ in _verified(path, file):
        pass


def copy_verified(path: Path, file: DataFile, target: Path) -> None:
    """Write the unzipped content of `path` to `target`, checking on the way.

    Where this raises, `target` may exist and be wrong: it must be a staging path that nobody reads.
    """
    _write(_verified(path, file), target)


def write_verified(source: IO[bytes], name: str, file: DataFile, target: Path) -> None:
    """As `copy_verified`, from an open stream called `name`; zipped if that ends with .gz."""
    _write(_checked(source, name, file), target)


def _write(chunks: Iterator[bytes], target: Path) -> None:
    with target.open("wb") as out:
        for chunk in chunks:
            out.write(chunk)


def _verified(path: Path, file: DataFile) -> Iterator[bytes]:
    try:
        with path.open("rb") as source:
            yield from _checked(source, str(path), file)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}).") from error


def _checked(source: IO[bytes], name: str, file: DataFile) -> Iterator[bytes]:
    """The unzipped chunks of `source`; raises at the end unless they were `file`."""
    stream: IO[bytes] = gzip.GzipFile(fileobj=source) if name.endswith(".gz") else source  # type: ignore[assignment]
    digest, length = hashlib.sha256(), 0
    while True:
        try:
            chunk = stream.read(_CHUNK)
        except EOFError:
            raise DataError(f"{name} is a truncated gzip file: it ends after {length} unzipped bytes.") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{name} is a damaged gzip file ({error}).") from error
        if not chunk:
            break
        digest.update(chunk)
        length += len(chunk)
        # Nothing longer than the real file is ever unpacked, however much a small .gz promises.
        if length > file.size:
            raise DataError(f"{name} is not {file.name}: it has more than its {file.size} bytes.")
        yield chunk
    if length < file.size:
        raise DataError(f"{name} is truncated: it has {length} of the {file.size} bytes of {file.name}.")
    found = digest.hexdigest()
    if found != file.sha256:
        other = identify(found)
        raise DataError(
            f"{name} is {f'really {other}' if other else 'damaged'}: "
            f"its sha256 is {found[:12]}…, not the {file.sha256[:12]}… of {file.name}."
        )
