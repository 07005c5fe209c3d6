"""GELU and SiLU with a threshold: what they give out stays as it is where it is large, and is exactly 0 elsewhere.

    φ_τ(x) = φ(x)  where |φ(x)| > τ
             0     elsewhere

Of all ways to keep so many values of a layer, keeping the largest changes its output least (in the sum of squares); for
ReLU it is `FATReLU`. At τ = 0 they are GELU and SiLU. With φ(x) ≥ −0.17 (GELU) and ≥ −0.28 (SiLU), a larger τ leaves
nothing of the negative side. They are for models trained with these activations (`hush.sparsify`): no design chooses
them, and the engine leaves them to torch.
"""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

from hush.nn import functional, moving_thresholds
from hush.nn.activations import Thresholded

__all__ = ["ThresholdedGELU", "ThresholdedSiLU"]

_APPROXIMATIONS = ("none", "tanh", "sigmoid")


class _KeepsLarge(Thresholded):
    """φ(x) where |φ(x)| > τ, else 0."""

    def dense(self, x: Tensor) -> Tensor:
        """φ(x)."""
        raise NotImplementedError

    @property
    def two_sided(self) -> bool:
        return False

    @property
    def least_input(self) -> float:
        """The x > 0 with φ(x) = τ: above it φ rises, and lies between x − 0.28 and x. By bisection."""
        low, high = self.threshold, self.threshold + 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            below = float(self.dense(torch.tensor(middle, dtype=torch.float64, device="cpu"))) < self.threshold
            low, high = (middle, high) if below else (low, middle)
        return high


class ThresholdedGELU(_KeepsLarge):
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

    def dense(self, x: Tensor) -> Tensor:
        return functional.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        kind = "" if self.approximate == "none" else f", approximate={self.approximate!r}"
        return f"{super().extra_repr()}{kind}"

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.keep_large(self.dense(x), self._gauge.threshold)
        return functional.thresholded_gelu(x, self.threshold, self.approximate)


class ThresholdedSiLU(_KeepsLarge):
    """SiLU(x) where |SiLU(x)| > τ, else 0."""

    activation = "thresholded_silu"

    def dense(self, x: Tensor) -> Tensor:
        return F.silu(x)

    def forward(self, x: Tensor) -> Tensor:
        if self._gauge is not None and self._is_moving():
            return moving_thresholds.keep_large(self.dense(x), self._gauge.threshold)
        return functional.thresholded_silu(x, self.threshold)
