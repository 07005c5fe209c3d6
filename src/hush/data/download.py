"""The official download, with time limits and a progress bar."""

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from hush.data.archive import extract
from hush.data.catalogue import DataSet
from hush.data.checksum import write_verified
from hush.data.errors import DataError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["from_official_address"]

# For connecting and for each read: a server that says nothing for so long is taken for dead.
_TIMEOUT_SECONDS = 20.0
_CHUNK = 1 << 20


def from_official_address(entry: DataSet, target: Path) -> None:
    """Fetch every file of `entry` from the first of its addresses that serves them all, checked, into `target`.

    Raises:
        DataError: with what went wrong at each address.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    complaints = []
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        for address in entry.urls:
            try:
                _download_from(address, entry, target, progress)
                return
            except DataError as error:
                complaints.append(str(error).rstrip("."))
    raise DataError(f"{'; '.join(complaints) or 'there is no official address'}.")


def _download_from(address: str, entry: DataSet, target: Path, progress: "Progress") -> None:
    if entry.archive is None:
        for file in entry.files:
            url = f"{address}{file.name}.gz"
            with _Response(url, progress) as response:
                write_verified(cast("IO[bytes]", response), url, file, target / file.name)
        return
    archive = target / entry.archive
    # Zipped it is smaller than its files; whoever sends more than those sends something else.
    left = sum(file.size for file in entry.files)
    with _Response(address + entry.archive, progress) as response, archive.open("wb") as out:
        while chunk := response.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise DataError(f"{address}{entry.archive} is longer than all its files together.")
            out.write(chunk)
    extract(archive, entry, target)
    archive.unlink()


class _Response:
    """A download that moves the bar, and whose troubles are sentences: those of the disk stay `OSError`s."""

    def __init__(self, url: str, progress: "Progress") -> None:
        self._url, self._progress = url, progress

    def __enter__(self) -> "_Response":
        request = urllib.request.Request(self._url, headers={"User-Agent": "hush"})
        try:
            self._response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            raise DataError(f"{self._url} answers {error.code} {error.reason}.") from error
        except (OSError, http.client.HTTPException) as error:
            raise DataError(f"{self._url} cannot be reached ({_reason(error)}).") from error
        length = self._response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else None
        self._task: TaskID = self._progress.add_task(self._url.rpartition("/")[2], total=total)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.remove_task(self._task)
        self._response.close()

    def read(self, size: int = -1) -> bytes:
        try:
            chunk: bytes = self._response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise DataError(f"{self._url} broke off ({_reason(error)}).") from error
        self._progress.advance(self._task, len(chunk))
        return chunk


def _reason(error: Exception) -> str:
    """The few words inside the wrappings of urllib."""
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner or type(error).__name__)
