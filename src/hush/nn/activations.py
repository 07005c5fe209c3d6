"""The five activations as modules, and the way from a design to its module.

Each takes `inplace` because others hand it over (timm builds `act_layer(inplace=True)`), and ignores it: the backward
needs the output alone, so overwriting the input would save nothing, and results are the same either way.

τ and m are plain numbers, which compilers and exporters take as constants and the engine reads for free; a state_dict
does not have them, for whoever builds the network knows its design. In other people's models, where each layer may have
its own, `in_state_dict=True` adds them as one small float64 tensor, torch's own "extra state": so whatever saves and
loads a state_dict (safetensors, `save_pretrained`) keeps them. What is found in a checkpoint is always taken, and what
is missing there changes nothing. While `hush.hold` moves a threshold, the state goes on with what the hold has counted.
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn

from hush.nn import functional, moving_thresholds
from hush.theory import ActivationEntry, Kernel, entry_of
from hush.theory.activations.registry import resolve

if TYPE_CHECKING:
    from hush.nn.holding.gauges import Gauge
    from hush.theory import Design

__all__ = ["CST", "CReLU", "FATReLU", "ShiftedReLU", "SoftThreshold", "Thresholded", "act_layer", "from_design"]


# A hold adds at least so many numbers to the state; fewer are the state of another activation.
HELD_NUMBERS = 18


class Thresholded(nn.Module):
    """An activation with a threshold τ ≥ 0: 0 wherever its input does not pass it."""

    # Its name in the registry.
    activation: ClassVar[str]
    # The attributes that its state holds, in order.
    _values: ClassVar[tuple[str, ...]] = ("threshold",)

    def __init__(self, threshold: float, *, inplace: bool = False, in_state_dict: bool = False) -> None:
        super().__init__()
        # What `hush.hold` measures here, while it does.
        self._gauge: Gauge | None = None
        self.in_state_dict = in_state_dict
        self.threshold = float(threshold)
        if not (math.isfinite(self.threshold) and self.threshold >= 0.0):
            raise ValueError(f"threshold must be finite and at least 0, got {threshold}.")

    @property
    def entry(self) -> ActivationEntry:
        """What the registry says of it."""
        return entry_of(self.activation)

    @property
    def two_sided(self) -> bool:
        """Whether the pre-activations that it silences lie between two thresholds, and not below one."""
        return self.entry.kernel is Kernel.ODD

    def extra_repr(self) -> str:
        return f"threshold={self.threshold:g}"

    def get_extra_state(self) -> Tensor:
        """τ, and m where there is one; NaN where somebody has made a tensor of it, which has an entry of its own."""
        values = [getattr(self, name) for name in self._values]
        plain = [math.nan if isinstance(value, Tensor) else float(value) for value in values]
        state = torch.tensor(plain, dtype=torch.float64, device="cpu")
        return state if self._gauge is None else torch.cat([state, self._gauge.state()])

    def set_extra_state(self, state: Any) -> None:
        more = len(state) - len(self._values) if isinstance(state, Tensor) and state.dim() == 1 else -1
        if more != 0 and more < HELD_NUMBERS:
            shape = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            names = " and ".join(self._values)
            raise ValueError(f"the state of {type(self).__name__} is a tensor of {names}, got {shape}.")
        own, counted = state[: len(self._values)], state[len(self._values) :]
        for name, value in zip(self._values, own.tolist(), strict=True):
            # What stays the same is not written: an accelerated model would prepare itself anew.
            if not math.isnan(value) and value != getattr(self, name):
                setattr(self, name, value)
        if self._gauge is not None:
            self._gauge.load(counted)

    def _is_moving(self) -> bool:
        """Whether compiled code must read the threshold anew at each run."""
        return self._gauge is not None and torch.compiler.is_compiling() and not torch.compiler.is_exporting()

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Older pickles lack these.
        super().__setstate__({"in_state_dict": False, "_gauge": None, **state})  # type: ignore[no-untyped-call]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self.in_state_dict:
            del destination[f"{prefix}_extra_state"]

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)
        # Weights that were saved without it, or with another activation in this place.
        if f"{prefix}_extra_state" in missing:
            missing.remove(f"{prefix}_extra_state")

    @property
    def _extra_state(self) -> None:
        """Nothing; transformers assigns a tensor of no meaning here where a checkpoint lacks the state."""

    @_extra_state.setter
    def _extra_state(self, value: Any) -> None:
        pass


class _Clipped(Thresholded):
    """And a clip m > 0, the most it gives out."""

    _values = ("threshold", "clip")

    def __init__(self, threshold: float, clip: float, *, inplace: bool = False, in_state_dict: bool = False) -> None:
        super().__init__(threshold, inplace=inplace, in_state_dict=in_state_dict)
        self.clip = float(clip)
        if not self.clip > 0.0:
            raise ValueError(f"clip must be positive, got {clip}.")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, clip={self.clip:g}"


class ShiftedReLU(Thresholded):
    """ReLU_τ(x) = max(x − τ, 0)."""

    activation = "shifted_relu"

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.one_sided(x, self._gauge.threshold, self._gauge.clip)
        return functional.shifted_relu(x, self.threshold)


class SoftThreshold(Thresholded):
    """ST_τ(x) = sign(x) max(|x| − τ, 0)."""

    activation = "soft_threshold"

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.odd(x, self._gauge.threshold, self._gauge.clip)
        return functional.soft_threshold(x, self.threshold)


class CReLU(_Clipped):
    """CReLU_{τ,m}(x) = min(max(x − τ, 0), m)."""

    activation = "crelu"

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.one_sided(x, self._gauge.threshold, self._gauge.clip)
        return functional.crelu(x, self.threshold, self.clip)


class CST(_Clipped):
    """CST_{τ,m}(x) = sign(x) min(max(|x| − τ, 0), m)."""

    activation = "cst"

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.odd(x, self._gauge.threshold, self._gauge.clip)
        return functional.cst(x, self.threshold, self.clip)


class FATReLU(Thresholded):
    """FATReLU_τ(x) = x for x > τ, else 0 (Kurtz et al. 2020): for comparison, hush designs none."""

    activation = "fatrelu"

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.jump(x, self._gauge.threshold)
        return functional.fatrelu(x, self.threshold)


def from_design(design: "Design", *, in_state_dict: bool = False, dim: int = -1) -> nn.Module:
    """The activation of a design, at its τ and m, as the module that its entry in the registry names: hush's own, or
    torch's for those that have nothing to choose (ReLU, GELU, SiLU, tanh).

    With `in_state_dict` its τ and m are part of state_dicts, where it is one of hush's own. `dim` is where the units
    are, which a threshold relative to the layer's own size asks: 1 behind a convolution.
    """
    entry = entry_of(design.activation)
    kind = entry.module_class()
    if kind is None and entry.torch_twins and not entry.parameters:
        return cast("type[nn.Module]", resolve(entry.torch_twins[0].module))()
    if kind is None:
        raise ValueError(f"{design.activation} has no torch module; name one in its entry of the registry.")
    if entry.clipped and design.clip is None:
        raise ValueError(f"{design.activation} needs a clip, and this design has none.")
    values = {"threshold": design.threshold, "clip": design.clip}
    options = {"dim": dim, "through_scale": design.through_scale is not False} if entry.relative else {}
    module: nn.Module = kind(**{name: values[name] for name in entry.parameters}, **options)
    if isinstance(module, Thresholded):
        module.in_state_dict = in_state_dict
    return module


def act_layer(design: "Design", *, dim: int = -1) -> Callable[..., nn.Module]:
    """What makes the activation of a design anew at each call, as libraries take it that build their layers so.

        timm.create_model("resnet18", act_layer=hush.nn.act_layer(design))

    It takes `inplace` and ignores it. The thresholds and clips are part of the model's state_dict, as they are after
    `swap_activations`. For thresholds relative to the layer's own size, `dim` is where the units are: 1 in a network of
    convolutions.
    """
    from_design(design)  # a design without a module fails here, and not when a model is built
    return functools.partial(_layer, design, dim)


def _layer(design: "Design", dim: int, inplace: bool = False) -> nn.Module:
    return from_design(design, in_state_dict=True, dim=dim)
