"""Data: digits, MNIST, Fashion-MNIST and CIFAR-10, verified whatever they come from, and usable offline.

`load` needs torch, which is loaded when it is first used: the command line starts without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hush.data.cache import cache_directory
from hush.data.catalogue import CATALOGUE, DataSet
from hush.data.errors import DataError
from hush.data.listing import Listed, listing
from hush.data.sources import Location, fetch, where

if TYPE_CHECKING:
    from hush.data.splits import Split as Split
    from hush.data.splits import Splits as Splits
    from hush.data.splits import load as load

__all__ = [
    "CATALOGUE",
    "DataError",
    "DataSet",
    "Listed",
    "Location",
    "Split",
    "Splits",
    "cache_directory",
    "fetch",
    "listing",
    "load",
    "where",
]

_LAZY = {"Split", "Splits", "load"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'hush.data' has no attribute {name!r}")
    return getattr(import_module("hush.data.splits"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
