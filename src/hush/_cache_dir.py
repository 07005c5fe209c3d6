"""The one folder in which hush keeps what it can make or fetch again: data sets, measured crossovers."""

import os
from pathlib import Path

__all__ = ["cache_dir"]


def cache_dir() -> Path:
    """$HUSH_CACHE, else hush in the user's cache: $XDG_CACHE_HOME, or ~/.cache. It may not exist yet."""
    if named := os.environ.get("HUSH_CACHE"):
        return Path(named).expanduser()
    # The XDG specification says that a relative path there is to be ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "hush"
