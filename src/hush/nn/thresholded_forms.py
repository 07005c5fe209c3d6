"""GELU and SiLU with a threshold: what they give out stays as it is where it is large, and is exactly 0 elsewhere.

    φ_τ(x) = φ(x)  where |φ(x)| > τ
             0     elsewhere

Of all ways to keep so many values of a layer, keeping the largest changes its output least (in the sum of squares); for
ReLU it is `FATReLU`. At τ = 0 they are GELU and SiLU. With φ(x) ≥ −0.17 (GELU) and ≥ −0.28 (SiLU), a larger τ leaves
nothing of the negative side. They are for models trained with these activations (`hush.sparsify`): no design chooses
them, and the engine leaves them to torch.
"""

from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

from hush.nn import functional, moving_thresholds
from hush.nn.activations import Thresholded

__all__ = ["ThresholdedGELU", "ThresholdedSiLU"]

_APPROXIMATIONS = ("none", "tanh", "sigmoid")


class ThresholdedGELU(Thresholded):
    """GELU(x) where |GELU(x)| > τ, else 0.

    Arguments:
        approximate: "none" and "tanh" as in nn.GELU; "sigmoid" is x σ(1.702 x), as in CLIP.
    """

    activation = "thresholded_gelu"

    def __init__(
        self, threshold: float, approximate: str = "none", *, inplace: bool = False, in_state_dict: bool = False
    ) -> None:
        super().__init__(threshold, inplace=inplace, in_state_dict=in_state_dict)
        if approximate not in _APPROXIMATIONS:
            raise ValueError(f"approximate must be one of {', '.join(_APPROXIMATIONS)}, got {approximate!r}.")
        self.approximate = approximate

    @property
    def two_sided(self) -> bool:
        return False

    def extra_repr(self) -> str:
        kind = "" if self.approximate == "none" else f", approximate={self.approximate!r}"
        return f"{super().extra_repr()}{kind}"

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.keep_large(functional.gelu(x, self.approximate), self._gauge.threshold)
        return functional.thresholded_gelu(x, self.threshold, self.approximate)


class ThresholdedSiLU(Thresholded):
    """SiLU(x) where |SiLU(x)| > τ, else 0."""

    activation = "thresholded_silu"

    @property
    def two_sided(self) -> bool:
        return False

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.keep_large(F.silu(x), self._gauge.threshold)
        return functional.thresholded_silu(x, self.threshold)
