"""hush: deep networks whose neurons stay quiet, and train anyway.

Everything is loaded when it is first used, so that the command line starts without NumPy and the theory without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hush import bench as bench
    from hush import data as data
    from hush import nn as nn
    from hush import report as report
    from hush import sparse as sparse
    from hush import train as train
    from hush.diagnose.callable_package import diagnose as diagnose
    from hush.diagnose.share_of_zeros import sparsity as sparsity
    from hush.nn import hold as hold
    from hush.nn import init_ as init_
    from hush.nn import ramp as ramp
    from hush.nn import sparsify as sparsify
    from hush.theory import Design as Design
    from hush.theory import design as design

__version__ = "0.1.0"

__all__ = [
    "Design",
    "__version__",
    "bench",
    "data",
    "design",
    "diagnose",
    "hold",
    "init_",
    "nn",
    "ramp",
    "report",
    "sparse",
    "sparsify",
    "sparsity",
    "train",
]

# name: the module that holds it, and the attribute there, or None for the module itself
_LAZY = {
    "Design": ("hush.theory", "Design"),
    "design": ("hush.theory", "design"),
    "bench": ("hush.bench", None),
    "data": ("hush.data", None),
    "diagnose": ("hush.diagnose", None),
    "hold": ("hush.nn", "hold"),
    "init_": ("hush.nn", "init_"),
    "nn": ("hush.nn", None),
    "ramp": ("hush.nn", "ramp"),
    "report": ("hush.report", None),
    "sparse": ("hush.sparse", None),
    "sparsify": ("hush.nn", "sparsify"),
    "sparsity": ("hush.diagnose", "sparsity"),
    "train": ("hush.train", None),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'hush' has no attribute {name!r}")
    path, attribute = _LAZY[name]
    module = import_module(path)
    return module if attribute is None else getattr(module, attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
