"""The registry: everything hush knows of an activation, in one entry.

Theory, torch modules, the engine, the command line and the explorer ask here and keep no tables of their own. So adding
an activation is one entry:

    register(ActivationEntry("mine", construct=my_phi, parameters=("threshold",), threshold_at=one_sided_threshold,
                             module="mypackage.modules:Mine"))

This module never imports torch: a module is named as "package.module:Class" and resolved when someone asks for it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from typing import Any

from hush.theory._arrays import Array
from hush.theory._normal import ndtri
from hush.theory.activations.protocol import Activation

__all__ = [
    "ActivationEntry",
    "Kernel",
    "TorchTwin",
    "activation",
    "activation_names",
    "clipped_names",
    "entries",
    "entry_of",
    "odd_threshold",
    "one_sided_threshold",
    "register",
    "unregister",
]


class Kernel(IntEnum):
    """What the native engine computes for φ at threshold τ ≥ 0 and clip m.

    ONE_SIDED  clamp(x − τ, 0, m)
    ODD        clamp(x − clamp(x, −τ, τ), −m, m)
    JUMP       x where x > τ, else 0
    IDENTITY   x, whose own zeros are left out
    """

    ONE_SIDED = 0
    ODD = 1
    JUMP = 2
    IDENTITY = 3


@dataclass(frozen=True)
class TorchTwin:
    """A module of torch's own that computes the same function.

    Attributes:
        module: its class, as "package.module:Class".
        read: from such a module to the entry's parameters, in order; None where this one is another function after all.
    """

    module: str
    read: Callable[[Any], tuple[float, ...] | None]


@dataclass(frozen=True)
class ActivationEntry:
    """One activation.

    Attributes:
        name: as users write it, an identifier.
        construct: from the parameters, in order, to φ.
        parameters: their names; the torch module takes them as keywords and has them as attributes.
        label: its name in tables.
        title: its name in lists to choose from.
        symbol: its name in figures, as matplotlib's mathtext.
        odd: whether φ(−x) = −φ(x).
        relative: whether threshold and clip are in units of the layer's own size, as of `Relative`; `construct` and the
            torch module then take `through_scale` too, and the module `dim`.
        threshold_at: from a sparsity to τ/√q*; None where `design` has nothing to choose.
        lowest_sparsity: the sparsity at τ = 0.
        slope_of_clip, curvature_of_clip: from τ and every m at q* = 1 to V′ and to V″ on the Edge of Chaos, where a
        closed
            form exists that is faster or more precise than asking φ at each m.
        twin: the name of the same activation with a clip, or without one.
        kernel: how the native engine computes it; None leaves it to torch.
        module: its torch module: a class, or "package.module:Class".
        torch_twins: torch's own modules that are the same function.
    """

    name: str
    construct: Callable[..., Activation]
    parameters: tuple[str, ...] = ()
    label: str = ""
    title: str = ""
    symbol: str = ""
    odd: bool = False
    relative: bool = False
    threshold_at: Callable[[float], float] | None = None
    lowest_sparsity: float = 0.5
    slope_of_clip: Callable[[float, Array], Array] | None = None
    curvature_of_clip: Callable[[float, Array], Array] | None = None
    twin: str | None = None
    kernel: Kernel | None = None
    module: type | str | None = None
    torch_twins: tuple[TorchTwin, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"the name of an activation must be an identifier, such as crelu, got {self.name!r}.")
        for field in ("label", "title", "symbol"):
            if not getattr(self, field):
                object.__setattr__(self, field, self.name)
        if self.threshold_at is not None and self.parameters not in (("threshold",), ("threshold", "clip")):
            raise ValueError(
                f"{self.name} can be designed only with the parameters threshold or threshold and clip, "
                f"got {', '.join(self.parameters) or 'none'}."
            )
        if self.kernel is not None and not {*self.parameters} <= {"threshold", "clip"}:
            raise ValueError(
                f"the engine computes {self.name} from a threshold and a clip alone, got {', '.join(self.parameters)}."
            )

    @property
    def clipped(self) -> bool:
        """Whether it has a clip m."""
        return "clip" in self.parameters

    @property
    def designable(self) -> bool:
        """Whether `design` chooses its parameters."""
        return self.threshold_at is not None

    def unit(self, q_star: float) -> float:
        """What its threshold and clip are measured in: √q*, or 1 where they are relative to the layer's own size."""
        return 1.0 if self.relative else math.sqrt(q_star)

    def module_class(self) -> type | None:
        """The class of its torch module, imported now; None where it has none."""
        return resolve(self.module) if isinstance(self.module, str) else self.module


def resolve(path: str) -> type:
    """The class that "package.module:Class" names."""
    package, _, name = path.partition(":")
    found: type = getattr(import_module(package), name)
    return found


class _Registry:
    """The entries by name, in the order of registration; `version` changes whenever they do."""

    def __init__(self) -> None:
        self.entries: dict[str, ActivationEntry] = {}
        self.version = 0


_registry = _Registry()


def register(entry: ActivationEntry) -> ActivationEntry:
    """Make `entry` known to all of hush.

    Raises:
        ValueError: if an activation of that name is known already.
    """
    if entry.name in _registry.entries:
        raise ValueError(f"an activation called {entry.name} is registered already; take another name.")
    _registry.entries[entry.name] = entry
    _registry.version += 1
    return entry


def unregister(name: str) -> None:
    """Forget an activation."""
    del _registry.entries[entry_of(name).name]
    _registry.version += 1


def version() -> int:
    """A number that changes whenever the registry does, for those who keep something derived from it."""
    return _registry.version


def entries() -> tuple[ActivationEntry, ...]:
    """Every entry, in the order of registration."""
    return tuple(_registry.entries.values())


def activation_names() -> tuple[str, ...]:
    """The names of the activations that `design` takes."""
    return tuple(entry.name for entry in entries() if entry.designable)


def clipped_names() -> tuple[str, ...]:
    """Those of them that have a clip."""
    return tuple(entry.name for entry in entries() if entry.designable and entry.clipped)


def entry_of(name: str, *, designable: bool = False) -> ActivationEntry:
    """The entry called `name`.

    Raises:
        ValueError: if there is none, or with `designable` if `design` cannot choose for it.
    """
    entry = _registry.entries.get(name)
    if entry is None or (designable and not entry.designable):
        raise ValueError(f"unknown activation {name!r}; hush designs {', '.join(activation_names())}.")
    return entry


def activation(
    name: str, threshold: float, clip: float | None = None, *, through_scale: bool | None = None
) -> Activation:
    """The activation `name` at τ = threshold and, for those with a clip, m = clip; for relative thresholds, whether the
    gradient goes through the scale."""
    entry = entry_of(name, designable=True)
    options = {} if through_scale is None else {"through_scale": through_scale}
    if options and not entry.relative:
        raise ValueError(f"{name} has no scale of its own for a gradient to go through, got {through_scale = }.")
    if entry.clipped:
        if clip is None:
            raise ValueError(f"{name} needs a clip.")
        return entry.construct(threshold, clip, **options)
    if clip is not None and clip != float("inf"):
        twin = f"; the clipped twin is {entry.twin}" if entry.twin else ""
        raise ValueError(f"{name} has no clip, got clip = {clip}{twin}.")
    return entry.construct(threshold, **options)


def one_sided_threshold(sparsity: float) -> float:
    """τ/√q* = Φ⁻¹(s) for a φ that is 0 below τ (paper, eq. 57)."""
    # Of s near 1 the complement is what counts: Φ⁻¹(s) = −Φ⁻¹(1 − s).
    return -float(ndtri(1.0 - sparsity))


def odd_threshold(sparsity: float) -> float:
    """τ/√q* = Φ⁻¹((1 + s)/2) for a φ that is 0 between −τ and τ (paper, eq. 58)."""
    return -float(ndtri((1.0 - sparsity) / 2.0))
