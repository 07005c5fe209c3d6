"""The activations whose threshold is relative to the layer's own size, as modules.

    φ(h) = s ψ(h/s), s = rms(h) of each sample over its units

`hush.nn.relative_functions` has the functions, `docs/relative.md` what they are good for.
"""

import math
from typing import Any

from torch import Tensor

from hush.nn import functional
from hush.nn.activations import Thresholded
from hush.nn.relative_functions import Dimensions

__all__ = ["Relative", "RelativeCReLU", "RelativeCST", "RelativeReLU", "RelativeSoftThreshold"]


class Relative(Thresholded):
    """An activation with a threshold of τ times the root mean square of its input.

    Arguments:
        threshold: τ.
        dim: where the units are: the last dimension, 1 for the channels of a convolution, or several.
        through_scale: whether the gradient goes through the root mean square as well, or takes it for a constant.
    """

    def __init__(
        self,
        threshold: float,
        *,
        dim: Dimensions = -1,
        through_scale: bool = True,
        inplace: bool = False,
        in_state_dict: bool = False,
    ) -> None:
        super().__init__(threshold, inplace=inplace, in_state_dict=in_state_dict)
        self.dim = dim if isinstance(dim, int) else tuple(dim)
        self.through_scale = bool(through_scale)

    @property
    def _options(self) -> dict[str, Any]:
        return {"dim": self.dim, "through_scale": self.through_scale}

    def extra_repr(self) -> str:
        rest = "" if self.through_scale else ", through_scale=False"
        return f"{super().extra_repr()}, dim={self.dim}{rest}"


class _RelativeClipped(Relative):
    """And a clip of m times the same."""

    _values = ("threshold", "clip")

    def __init__(
        self,
        threshold: float,
        clip: float,
        *,
        dim: Dimensions = -1,
        through_scale: bool = True,
        inplace: bool = False,
        in_state_dict: bool = False,
    ) -> None:
        super().__init__(threshold, dim=dim, through_scale=through_scale, inplace=inplace, in_state_dict=in_state_dict)
        self.clip = float(clip)
        if not self.clip > 0.0 or math.isnan(self.clip):
            raise ValueError(f"clip must be positive, got {clip}.")

    def extra_repr(self) -> str:
        return f"clip={self.clip:g}, {super().extra_repr()}"


class RelativeReLU(Relative):
    """max(x − τ s, 0), s the root mean square of x over `dim`."""

    activation = "relative_relu"

    def forward(self, x: Tensor) -> Tensor:
        return functional.relative_relu(x, self.threshold, **self._options)


class RelativeSoftThreshold(Relative):
    """sign(x) max(|x| − τ s, 0), s the root mean square of x over `dim`."""

    activation = "relative_soft_threshold"

    def forward(self, x: Tensor) -> Tensor:
        return functional.relative_soft_threshold(x, self.threshold, **self._options)


class RelativeCReLU(_RelativeClipped):
    """min(max(x − τ s, 0), m s), s the root mean square of x over `dim`."""

    activation = "relative_crelu"

    def forward(self, x: Tensor) -> Tensor:
        return functional.relative_crelu(x, self.threshold, self.clip, **self._options)


class RelativeCST(_RelativeClipped):
    """sign(x) min(max(|x| − τ s, 0), m s), s the root mean square of x over `dim`."""

    activation = "relative_cst"

    def forward(self, x: Tensor) -> Tensor:
        return functional.relative_cst(x, self.threshold, self.clip, **self._options)
