"""Files that are there whole or not at all, and a lock that dies with its process."""

import os
import sys
import tempfile
from pathlib import Path
from typing import IO

__all__ = ["replace_bytes", "replace_text", "try_lock"]


def replace_text(path: Path, text: str) -> None:
    """`replace_bytes` of the text in UTF-8, its line ends as they are."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write `content` beside `path`, to the disk, and move it there with one rename: readers see the old or the new."""
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


if sys.platform == "win32":
    import msvcrt

    def try_lock(file: IO[bytes]) -> bool:
        """Take the lock on an open file, or say that another process has it."""
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def try_lock(file: IO[bytes]) -> bool:
        """Take the lock on an open file, or say that another process has it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
