"""The text every Python carries: the sources of its standard library, docstrings and all, and its documentation.

Nothing is downloaded. What is read depends on the version of Python, so there is no checksum to hold it against; which
file belongs to which split depends on its path alone, and stays the same from version to version.
"""

import ast
import hashlib
import platform
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from hush.data.errors import DataError

__all__ = ["Document", "TextDescription", "describe_text", "python_documents", "split_of"]

# Neither written by Python's authors for its users, nor the same on two machines: installed packages, tests, what
# building this Python left behind. The tables of the codecs are no text.
_LEFT_OUT = ("site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings", "lib-dynload")
_LEFT_OUT_BEGINNINGS = ("_sysconfigdata", "config-", "sitecustomize")
# The documentation of the language as Python's help() shows it: a dictionary inside this file, read as its texts.
_TOPICS = PurePosixPath("pydoc_data/topics.py")
# Less than this is a Python without its sources.
_LEAST_BYTES = 1_000_000
_SHARES = (("test", 0.1), ("validation", 0.2), ("train", 1.0))


@dataclass(frozen=True)
class Document:
    """A text by its path relative to the standard library, with forward slashes."""

    path: str
    content: bytes


@dataclass(frozen=True)
class TextDescription:
    """What the text of a Python is.

    Attributes:
        files: how many.
        train, validation, test: bytes in each split.
        python: the version whose text it is.
        fingerprint: tells two texts apart; there is no right one, since every version of Python has its own.
    """

    files: int
    train: int
    validation: int
    test: int
    python: str
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"name": "text", **asdict(self)}

    def __str__(self) -> str:
        sizes = " + ".join(f"{size / 1e6:.1f}" for size in (self.train, self.validation, self.test))
        what = f"documentation and standard library of Python {self.python}"
        return f"{what}; {self.files} files, {sizes} MB, a byte at a time; embedded"


def describe_text(documents: Sequence[Document]) -> TextDescription:
    """The description of these texts, read by the Python that runs."""
    sizes = dict.fromkeys(("train", "validation", "test"), 0)
    digest = hashlib.sha256()
    for document in documents:
        sizes[split_of(document.path)] += len(document.content)
        digest.update(f"{document.path}\0{len(document.content)}\0".encode())
        digest.update(document.content)
    return TextDescription(
        len(documents), **sizes, python=platform.python_version(), fingerprint=digest.hexdigest()[:12]
    )


@lru_cache(maxsize=1)
def python_documents(library: Path | None = None) -> tuple[Document, ...]:
    """Every text of the running Python, each once, in the order of their paths.

    Arguments:
        library: the folder of the standard library; by default that of the running Python.

    Raises:
        DataError: if this Python does not carry its sources.
    """
    folder = Path(sysconfig.get_paths()["stdlib"]) if library is None else library
    found: dict[bytes, Document] = {}
    try:
        for document in sorted(_read(folder), key=lambda document: document.path):
            found.setdefault(hashlib.sha256(document.content).digest(), document)
    except OSError as error:
        raise DataError(f"the standard library in {folder} cannot be read ({error}): use another Python.") from error
    size = sum(len(document.content) for document in found.values())
    if size < _LEAST_BYTES:
        raise DataError(
            f"this Python has only {size:,} bytes of sources of its standard library in {folder}: "
            "use one that was installed with them."
        )
    return tuple(found.values())


def split_of(path: str) -> str:
    """ "train", "validation" or "test", by a hash of the path: eight, one and one tenth of all files."""
    place = int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") / 2**64
    return next(split for split, below in _SHARES if place < below)


def _read(folder: Path) -> Iterator[Document]:
    for file in folder.rglob("*.py"):
        path = PurePosixPath(file.relative_to(folder).as_posix())
        if path == _TOPICS:
            yield from _topics(file)
        elif not any(_is_left_out(part) for part in path.parts) and file.is_file():
            yield Document(str(path), file.read_bytes())


def _topics(file: Path) -> Iterator[Document]:
    for statement in ast.parse(file.read_bytes()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "topics":
            for topic, text in ast.literal_eval(statement.value).items():
                yield Document(f"{_TOPICS.with_suffix('')}/{topic}", text.encode())


def _is_left_out(part: str) -> bool:
    return part in _LEFT_OUT or part.startswith(_LEFT_OUT_BEGINNINGS)
