"""The data set `text`: bytes of Python's own documentation and standard library, to learn the byte that follows."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hush.data.errors import DataError
from hush.data.python_sources import TextDescription, describe_text, python_documents, split_of
from hush.data.splits import Split

__all__ = ["TextSplits", "byte_entropies", "load_text", "spread_windows", "windows_at"]


@dataclass(frozen=True, eq=False)
class TextSplits:
    """The text in three, each the bytes (N,) of its files one after the other, uint8."""

    train: Tensor
    validation: Tensor
    test: Tensor
    description: TextDescription


def load_text() -> TextSplits:
    """The text of the running Python, read from its own files.

    Raises:
        DataError: if this Python does not carry its sources.
    """
    documents = python_documents()
    parts: dict[str, list[bytes]] = {"train": [], "validation": [], "test": []}
    for document in documents:
        parts[split_of(document.path)].append(document.content)
    texts = {name: torch.from_numpy(np.frombuffer(b"".join(part), np.uint8).copy()) for name, part in parts.items()}
    return TextSplits(**texts, description=describe_text(documents))


def spread_windows(text: Tensor, context: int, count: int) -> Split:
    """`count` windows at equal distances, fewer where they would overlap: `context` bytes, and the byte after each.

    Raises:
        DataError: if the text has no window of that length.
    """
    most = (len(text) - 1) // context
    if most < 1:
        raise DataError(f"a text of {len(text)} bytes has no window of {context} bytes and the one that follows.")
    count = min(count, most)
    starts = torch.arange(count) * ((len(text) - 1 - context) // max(1, count - 1))
    return windows_at(text, starts, context)


def windows_at(text: Tensor, starts: Tensor, context: int) -> Split:
    """The windows that begin at `starts`: bytes (N, context) and those that follow them (N, context), int64."""
    windows = text[starts[:, None] + torch.arange(context + 1)].long()
    return Split(windows[:, :-1], windows[:, 1:])


def byte_entropies(text: Tensor) -> tuple[float, float, float]:
    """What counting tells of a text: the entropy of a byte, that of a byte given the one before it (both in nats), and
    the share of the most frequent byte."""
    pairs = np.bincount(text[:-1].numpy().astype(np.int64) * 256 + text[1:].numpy(), minlength=65536).reshape(256, 256)
    joint = pairs / pairs.sum()
    first, second = joint.sum(1), joint.sum(0)
    return _entropy(second), _entropy(joint.ravel()) - _entropy(first), float(second.max())


def _entropy(shares: NDArray[np.float64]) -> float:
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
