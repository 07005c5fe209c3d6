"""Loading Lightning for a command, without what its metrics load in order to draw and to hear.

Lightning imports torchmetrics, which imports matplotlib for its plots and scipy.signal for a patch of its audio
metrics: together a second, and hush uses neither. While torchmetrics is being loaded, empty modules stand in their
places; afterwards they are gone, and the real ones are imported by whoever wants them. Only commands do this, in a
process of their own: a program that imports hush.train may well draw with torchmetrics.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["load_lightning"]


def load_lightning() -> None:
    """Import Lightning; where it is not installed, leave it to `hush.train` to say so."""
    if find_spec("lightning") is None or "torchmetrics" in sys.modules:
        return
    standing_in = {name: module for name, module in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(standing_in)
    try:
        import_module("torchmetrics")
    except Exception:
        # Another version of torchmetrics wants more than stands here: it shall have the real ones.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchmetrics"]:
            del sys.modules[name]
    finally:
        for name, module in standing_in.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
    import_module("lightning.pytorch")


def _stand_ins() -> dict[str, ModuleType]:
    """What torchmetrics asks for while it is loaded: names in annotations, and a decorator."""
    matplotlib = _module("matplotlib")
    matplotlib.axes = _module("matplotlib.axes", Axes=object)
    matplotlib.colors = _module("matplotlib.colors", Colormap=object)
    matplotlib.pyplot = _module("matplotlib.pyplot", Figure=object, style=SimpleNamespace(context=_undecorated))
    parts = (matplotlib, matplotlib.axes, matplotlib.colors, matplotlib.pyplot)
    return {part.__name__: part for part in (*parts, _module("scipy.signal", hamming=None))}


def _module(name: str, **values: Any) -> Any:
    module = ModuleType(name)
    module.__dict__.update(values)
    return module


def _undecorated(*_: object) -> Callable[[Any], Any]:
    return lambda function: function
