"""The five activations as modules, and the way from a design to its module.

Each takes `inplace` because others hand it over (timm builds `act_layer(inplace=True)`), and ignores it: the backward
needs the output alone, so overwriting the input would save nothing, and results are the same either way.
"""

import math
from typing import TYPE_CHECKING, ClassVar, cast

from torch import Tensor, nn

from hush.nn import functional
from hush.theory import ActivationEntry, entry_of
from hush.theory.activations.registry import resolve

if TYPE_CHECKING:
    from hush.theory import Design

__all__ = ["CST", "CReLU", "FATReLU", "ShiftedReLU", "SoftThreshold", "from_design"]


class _Thresholded(nn.Module):
    """An activation with a threshold τ ≥ 0: 0 wherever its input does not pass it."""

    # Its name in the registry.
    activation: ClassVar[str]

    def __init__(self, threshold: float, *, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = float(threshold)
        if not (math.isfinite(self.threshold) and self.threshold >= 0.0):
            raise ValueError(f"threshold must be finite and at least 0, got {threshold}.")

    @property
    def entry(self) -> ActivationEntry:
        """What the registry says of it."""
        return entry_of(self.activation)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold:g}"


class _Clipped(_Thresholded):
    """And a clip m > 0, the most it gives out."""

    def __init__(self, threshold: float, clip: float, *, inplace: bool = False) -> None:
        super().__init__(threshold, inplace=inplace)
        self.clip = float(clip)
        if not self.clip > 0.0:
            raise ValueError(f"clip must be positive, got {clip}.")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, clip={self.clip:g}"


class ShiftedReLU(_Thresholded):
    """ReLU_τ(x) = max(x − τ, 0)."""

    activation = "shifted_relu"

    def forward(self, x: Tensor) -> Tensor:
        return functional.shifted_relu(x, self.threshold)


class SoftThreshold(_Thresholded):
    """ST_τ(x) = sign(x) max(|x| − τ, 0)."""

    activation = "soft_threshold"

    def forward(self, x: Tensor) -> Tensor:
        return functional.soft_threshold(x, self.threshold)


class CReLU(_Clipped):
    """CReLU_{τ,m}(x) = min(max(x − τ, 0), m)."""

    activation = "crelu"

    def forward(self, x: Tensor) -> Tensor:
        return functional.crelu(x, self.threshold, self.clip)


class CST(_Clipped):
    """CST_{τ,m}(x) = sign(x) min(max(|x| − τ, 0), m)."""

    activation = "cst"

    def forward(self, x: Tensor) -> Tensor:
        return functional.cst(x, self.threshold, self.clip)


class FATReLU(_Thresholded):
    """FATReLU_τ(x) = x for x > τ, else 0 (Kurtz et al. 2020): for comparison, hush designs none."""

    activation = "fatrelu"

    def forward(self, x: Tensor) -> Tensor:
        return functional.fatrelu(x, self.threshold)


def from_design(design: "Design") -> nn.Module:
    """The activation of a design, at its τ and m, as the module that its entry in the registry names: hush's own, or
    torch's for those that have nothing to choose (ReLU, GELU, SiLU, tanh)."""
    entry = entry_of(design.activation)
    kind = entry.module_class()
    if kind is None and entry.torch_twins and not entry.parameters:
        return cast("type[nn.Module]", resolve(entry.torch_twins[0].module))()
    if kind is None:
        raise ValueError(f"{design.activation} has no torch module; name one in its entry of the registry.")
    if entry.clipped and design.clip is None:
        raise ValueError(f"{design.activation} needs a clip, and this design has none.")
    values = {"threshold": design.threshold, "clip": design.clip}
    module: nn.Module = kind(**{name: values[name] for name in entry.parameters})
    return module
