"""Freed memory stays with the process: counted in pages that the system has to give anew."""

import os
import subprocess
import sys

import pytest

from hush.sparse import keep_freed_memory

_PAGES_OF_ANOTHER_USE = """
import resource, torch
from hush.sparse import keep_freed_memory

kept = {call}
sizes = (10, 20, 5)  # millions of floats, together and one after another

def use():
    tensors = [torch.ones(1_000_000 * size) for size in sizes]
    tensors.pop()
    tensors += [torch.zeros(3_000_000), torch.zeros(17_000_000)]

# How many uses it takes until every size has found its place depends on where the system puts the heap.
pages = []
for _ in range(10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    use()
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(kept, min(pages))
"""


def _has_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, ValueError):
        return False


def _run(call: str, **environment: str) -> tuple[str, int]:
    """What `call` returned, and the pages of 220 MB that another use of such memory took from the system."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    ended = subprocess.run(
        [sys.executable, "-c", _PAGES_OF_ANOTHER_USE.format(call=call)],
        capture_output=True,
        text=True,
        check=True,
        env={**own, **environment},
    )
    kept, pages = ended.stdout.split()
    return kept, int(pages)


@pytest.mark.skipif(not _has_glibc(), reason="the C library is not glibc")
def test_another_use_takes_no_pages_from_the_system() -> None:
    kept, pages = _run("keep_freed_memory()")
    plain, pages_without = _run("None")
    assert (kept, plain) == ("True", "None")
    assert pages_without > 1000  # or this test could not tell
    assert pages < pages_without / 10


def test_an_environment_that_sets_malloc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert keep_freed_memory() is False
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_max=7")
    assert keep_freed_memory() is False


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", unknown)
    assert keep_freed_memory() is False
