"""Training: one config, one run directory. Reading runs needs NumPy only; training them needs the extra `train`.

Every name is loaded when it is first used: the command line asks for the errors long before it asks for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hush.train.config import TrainConfig as TrainConfig
    from hush.train.errors import Interrupted as Interrupted
    from hush.train.errors import MissingExtraError as MissingExtraError
    from hush.train.errors import RunBusyError as RunBusyError
    from hush.train.errors import RunError as RunError
    from hush.train.hold_sparsity import HoldSparsity as HoldSparsity
    from hush.train.machine import Machine as Machine
    from hush.train.outcome import Outcome as Outcome
    from hush.train.result import Divergence as Divergence
    from hush.train.result import Result as Result
    from hush.train.result import Run as Run
    from hush.train.result import find_runs as find_runs
    from hush.train.result import finished_run as finished_run
    from hush.train.result import load_run as load_run
    from hush.train.run import train as train
    from hush.train.sparsity_monitor import SparsityMonitor as SparsityMonitor

__all__ = [
    "Divergence",
    "HoldSparsity",
    "Interrupted",
    "Machine",
    "MissingExtraError",
    "Outcome",
    "Result",
    "Run",
    "RunBusyError",
    "RunError",
    "SparsityMonitor",
    "TrainConfig",
    "find_runs",
    "finished_run",
    "load_run",
    "train",
]

# name: the module that holds it
_HOME = {
    "Divergence": "result",
    "HoldSparsity": "hold_sparsity",
    "Interrupted": "errors",
    "Machine": "machine",
    "MissingExtraError": "errors",
    "Outcome": "outcome",
    "Result": "result",
    "Run": "result",
    "RunBusyError": "errors",
    "RunError": "errors",
    "SparsityMonitor": "sparsity_monitor",
    "TrainConfig": "config",
    "find_runs": "result",
    "finished_run": "result",
    "load_run": "result",
    "train": "run",
}
_NEEDS_LIGHTNING = ("HoldSparsity", "SparsityMonitor", "train")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hush.train' has no attribute {name!r}")
    if name in _NEEDS_LIGHTNING:
        _check_lightning()
    return getattr(import_module(f"hush.train.{_HOME[name]}"), name)


def _check_lightning() -> None:
    try:
        import lightning  # noqa: F401
    except ImportError as error:
        from hush._extras import how_to_install
        from hush.train.errors import MissingExtraError

        raise MissingExtraError(f"training needs Lightning: {how_to_install('train')}.") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
