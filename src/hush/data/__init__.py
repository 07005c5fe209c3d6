"""Data: digits, MNIST, Fashion-MNIST and CIFAR-10, verified whatever they come from; Python's own text; all offline.

Every name is loaded when it is first used: `load` needs torch, and fetching needs more than looking a name up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hush.data.cache import cache_directory as cache_directory
    from hush.data.catalogue import CATALOGUE as CATALOGUE
    from hush.data.catalogue import DataSet as DataSet
    from hush.data.errors import DataError as DataError
    from hush.data.inventory import Listed as Listed
    from hush.data.inventory import listing as listing
    from hush.data.sources import Location as Location
    from hush.data.sources import fetch as fetch
    from hush.data.sources import where as where
    from hush.data.splits import Split as Split
    from hush.data.splits import Splits as Splits
    from hush.data.splits import load as load
    from hush.data.text import TextSplits as TextSplits
    from hush.data.text import load_text as load_text

__all__ = [
    "CATALOGUE",
    "DataError",
    "DataSet",
    "Listed",
    "Location",
    "Split",
    "Splits",
    "TextSplits",
    "cache_directory",
    "fetch",
    "listing",
    "load",
    "load_text",
    "where",
]

# name: the module that holds it
_HOME = {
    "CATALOGUE": "catalogue",
    "DataError": "errors",
    "DataSet": "catalogue",
    "Listed": "inventory",
    "Location": "sources",
    "Split": "splits",
    "Splits": "splits",
    "TextSplits": "text",
    "cache_directory": "cache",
    "fetch": "sources",
    "listing": "inventory",
    "load": "splits",
    "load_text": "text",
    "where": "sources",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hush.data' has no attribute {name!r}")
    return getattr(import_module(f"hush.data.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
