"""Training: one config, one run directory. Reading runs needs NumPy only; training them needs the extra `train`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hush.train.config import TrainConfig
from hush.train.errors import Interrupted, MissingExtraError, RunBusyError, RunError
from hush.train.result import Divergence, Result, Run, find_runs, load_run

if TYPE_CHECKING:
    from hush.train.run import train as train
    from hush.train.sparsity_monitor import SparsityMonitor as SparsityMonitor

__all__ = [
    "Divergence",
    "Interrupted",
    "MissingExtraError",
    "Result",
    "Run",
    "RunBusyError",
    "RunError",
    "SparsityMonitor",
    "TrainConfig",
    "find_runs",
    "load_run",
    "train",
]

_LAZY = {
    "SparsityMonitor": "hush.train.sparsity_monitor",
    "train": "hush.train.run",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'hush.train' has no attribute {name!r}")
    try:
        import lightning  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("training needs Lightning: pip install 'hush[train]'.") from error
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
