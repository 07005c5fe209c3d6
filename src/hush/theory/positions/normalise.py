"""RMSNorm and LayerNorm over channels: K[t, t′] ← K[t, t′]/√(K[t, t] K[t′, t′]), LayerNorm after its mean is taken out.

Backwards a norm divides the gradient by its position's scale; that it also takes out the component along the activation
itself is of the order 1/N.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from hush.theory._arrays import Array
from hush.theory.positions.field import Field
from hush.theory.positions.step import GainNoise, Preactivation

__all__ = ["Normalise"]


@dataclass(frozen=True)
class Normalise:
    """x ← x/rms(x) at each position and input ("rms"), or (x − mean(x))/std(x) ("layer"), over the channels."""

    kind: Literal["rms", "layer"] = "rms"
    mixes_channels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.kind not in ("rms", "layer"):
            raise ValueError(f"a norm is 'rms' or 'layer', got {self.kind!r}.")

    def forward(self, field: Field, width: int | None = None) -> Field:
        kernel = field.kernel
        if self.kind == "layer":
            centre = field.mean[:, None, :, None] * field.mean[None, :, None, :]
            kernel = kernel - (centre[:, :, 0] if field.stationary else centre)
        scale = _scales(replace(field, kernel=kernel))
        across = scale[:, None, :, None] * scale[None, :, None, :]
        mean = field.mean / scale if self.kind == "rms" else None
        kernel = kernel / (across[:, :, 0] if field.stationary else across)
        return field.with_kernel(kernel, mean=mean, gaussian=field.gaussian, noise=0.0, level_known=True)

    def backward(self, gradient: Field, field: Field) -> Field:
        centred = field.kernel
        if self.kind == "layer" and field.mean.any():
            centre = field.mean[:, None, :, None] * field.mean[None, :, None, :]
            centred = centred - (centre[:, :, 0] if field.stationary else centre)
        scale = _scales(replace(field, kernel=centred))[0]
        across = scale[0] ** 2 if field.stationary else np.outer(scale, scale)
        return gradient.with_kernel(gradient.kernel / across)

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        """The noise of the stream that it divides by."""
        return GainNoise(0.0, math.sqrt(field.sampling(width)))

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        return ()


def _scales(field: Field) -> Array:
    profile = field.profile
    if not (profile > 0.0).all():
        raise ValueError(f"a norm needs a positive variance at every position, got {profile.min()}.")
    return np.sqrt(profile)
