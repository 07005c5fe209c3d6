"""The head of a classifier or a language model: its logits, and the squared gradient that cross entropy sends back.

With p = softmax(logits) and a label y, δ = p − y: E|δ|² = 1 − 2/C + α(C, v) for C classes and logits of variance v,
labels that know nothing of the network. A language model reads every position; there δ(t)·δ(t′) is what two labels have
in common, less 2/C, plus the overlap of the two softmax rows.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from hush.theory._checks import check_sigmas
from hush.theory.positions.convolution import biased
from hush.theory.positions.field import Field
from hush.theory.positions.softmax_rows import sharpness
from hush.theory.positions.step import GainNoise, Preactivation

__all__ = ["Head"]


@dataclass(frozen=True)
class Head:
    """logits = W x̄ + b, x̄ the mean over positions, the last position, or each position by itself.

    Arguments:
        classes: C.
        sigma_w, sigma_b: weights are N(0, σ_w²/fan-in), biases N(0, σ_b²).
        reads: "mean", "last" or "each".
    """

    classes: int
    sigma_w: float = 1.0
    sigma_b: float = 0.0
    reads: Literal["mean", "last", "each"] = "mean"
    mixes_channels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_sigmas(self.sigma_w, self.sigma_b)
        if self.classes < 2:
            raise ValueError(f"a head needs at least 2 classes, got {self.classes}.")
        if self.reads not in ("mean", "last", "each"):
            raise ValueError(f"reads must be 'mean', 'last' or 'each', got {self.reads!r}.")

    def forward(self, field: Field, width: int | None = None) -> Field:
        """The logits as a field: over one position, or over all where each is read."""
        kernel = field.kernel
        if self.reads == "mean":
            kernel = kernel.mean(2 if field.stationary else (2, 3), keepdims=True)
        elif self.reads == "last":
            kernel = kernel[:, :, :1] if field.stationary else kernel[:, :, -1:, -1:]
        shape = field.shape if self.reads == "each" else (1,)
        return biased(field, self.sigma_w**2 * kernel, self.sigma_b, width, shape)

    def backward(self, gradient: Field, field: Field) -> Field:
        kernel = self.sigma_w**2 * gradient.kernel
        if self.reads != "each":
            size, value = field.positions, float(kernel.flat[0])
            full = np.zeros((1, 1, size, size))
            if self.reads == "mean":
                full[...] = value / size**2
            else:
                full[0, 0, -1, -1] = value
            if field.stationary:
                if self.reads == "last":
                    raise ValueError("the gradient of the last position is not stationary; take field.full().")
                full = full[:, :, 0]
            kernel = full
        return gradient.with_kernel(kernel, shape=field.shape)

    def loss_gradient(self, field: Field, *, same_label: float | None = None) -> Field:
        """E[δ(t)·δ(t′)] of cross entropy (its mean over positions, where each is read) behind the head.

        `same_label` is the chance that two positions have the same label, 1/C unless given.
        """
        logits = self.forward(field.first())
        v = np.maximum(logits.profile[0], 0.0)
        c = float(self.classes)
        w = sharpness(np.full(v.shape, c), v)
        if logits.stationary:
            raise ValueError("the loss of a stationary field is not implemented; take field.full().")
        own = np.sqrt(np.outer(v, v))
        r = np.divide(logits.kernel[0, 0], own, out=np.zeros_like(own), where=own > 0.0)
        overlap = np.exp(r * np.sqrt(np.outer(w, w))) / c
        same = np.full(own.shape, 1.0 / c if same_label is None else same_label)
        np.fill_diagonal(same, 1.0)
        kernel = (same - 2.0 / c + overlap) / len(v) ** 2
        return logits.with_kernel(kernel[None, None], noise=0.0)

    def gradient(self, field: Field, *, same_label: float | None = None) -> Field:
        """What cross entropy sends into the stack that the head reads: `loss_gradient`, back through the head."""
        return self.backward(self.loss_gradient(field, same_label=same_label), field.first())

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        return GainNoise(2.0 / (width * gradient.effective_positions()))

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        return ()
