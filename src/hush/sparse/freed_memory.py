"""Freed memory is kept for the next allocation.

torch asks the C library for every tensor on the CPU, and glibc hands back to the system what is larger than 32 MB, and
whatever lies free at the end of its heap. The next step asks for all of it again, page by page. A dense network hides
that behind its products; of an accelerated one it may be half of the time.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # mallopt's names of them
_NEVER = -1


def keep_freed_memory() -> bool:
    """Let this process keep the memory it frees, for good; whether the C library could be told so.

    Steps whose tensors are tens of megabytes, as those of image networks, get faster by it, with torch's own operations
    and with the engine. The process stays as large as it has once been. Nothing is done where the environment sets
    malloc's parameters itself (MALLOC_…, GLIBC_TUNABLES), or where the C library is not glibc.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        os.confstr("CS_GNU_LIBC_VERSION")
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError, ValueError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
