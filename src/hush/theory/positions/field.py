"""A field: the activations of one layer over positions (tokens, pixels) in a wide random network, as second moments.

Channels are alike, so a field is described by what one channel does on average over all of them:

    K[a, b, t, t′] = E[x_a(t) x_b(t′)]        for inputs a, b and positions t, t′

Two forms share one class. The *full* form keeps K for every pair of positions, exact also at borders that zero padding
makes. The *stationary* form keeps it by displacement, K[a, b, d], for fields that look the same everywhere (circular
padding), and so scales to maps of any size. A squared gradient that goes backwards is a field too: there K[0, 0, t, t′]
is the *sum* over channels of δ(t) δ(t′), so that it needs to know no widths.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hush.theory._arrays import Array

__all__ = ["Field", "Indices", "displacement_index"]

Indices = NDArray[np.intp]

# A full field of more positions would need gigabytes.
_MOST_POSITIONS = 8192


@dataclass(frozen=True, eq=False)
class Field:
    """Second moments over positions; see the module's docstring. Make one with `white`, `of_inputs` or `uniform`.

    Attributes:
        shape: of the positions: (T,) for tokens or a 1-d map, (H, W) for an image.
        kernel: (inputs, inputs, T, T), or (inputs, inputs, T) by displacement where `stationary`; T = the product of
            the shape.
        mean: (inputs, T), the mean over channels; (inputs, 1) where stationary. 0 behind any random matrix.
        gaussian: whether channels are Gaussian, as behind a random matrix. Activations can be applied only then.
        noise: the relative variance, over networks of the width that `run_steps` was given, of the kernel's level.
        level_known: whether the mean square over channels is what the kernel says in every network, as behind a norm.
    """

    shape: tuple[int, ...]
    kernel: Array
    mean: Array
    stationary: bool = False
    gaussian: bool = True
    noise: float = 0.0
    level_known: bool = False

    def __post_init__(self) -> None:
        size = self.positions
        form = (size,) if self.stationary else (size, size)
        if self.kernel.ndim < 3 or self.kernel.shape[0] != self.kernel.shape[1] or self.kernel.shape[2:] != form:
            raise ValueError(
                f"the kernel of a field over {self.shape} must have the shape (inputs, inputs, "
                f"{', '.join(map(str, form))}), got {self.kernel.shape}."
            )

    # --- how to make one ---

    @classmethod
    def of_inputs(cls, inputs: Array, shape: tuple[int, ...] | None = None) -> "Field":
        """The field of measured activations of shape (inputs, channels, *shape), channel by channel averaged."""
        x = np.asarray(inputs, dtype=np.float64)
        if x.ndim < 3:
            raise ValueError(f"inputs must have the shape (inputs, channels, *positions), got {x.shape}.")
        shape = x.shape[2:] if shape is None else shape
        flat = x.reshape(x.shape[0], x.shape[1], -1)
        _check_size(flat.shape[2])
        kernel = np.einsum("aci,bcj->abij", flat, flat, optimize=True) / flat.shape[1]
        return cls(shape, kernel, flat.mean(1))

    @classmethod
    def uniform(
        cls,
        shape: tuple[int, ...],
        variance: float = 1.0,
        correlation: float = 0.0,
        *,
        inputs: int = 1,
        between_inputs: float = 0.0,
        stationary: bool = False,
    ) -> "Field":
        """All positions alike: variance on the diagonal, `correlation` between any two positions.

        `between_inputs` is the correlation of two inputs at the same position; at different positions it is the product
        of both.
        """
        for name, value in (("correlation", correlation), ("between_inputs", between_inputs)):
            if not -1.0 <= value <= 1.0:
                raise ValueError(f"{name} must lie in [−1, 1], got {value}.")
        if not variance >= 0.0 or not math.isfinite(variance):
            raise ValueError(f"the variance must be finite and not negative, got {variance}.")
        size = math.prod(shape)
        across = np.where(np.eye(inputs, dtype=bool), 1.0, between_inputs)
        if stationary:
            along = np.full(size, correlation)
            along[0] = 1.0
            return cls(shape, variance * across[:, :, None] * along, np.zeros((inputs, 1)), True)
        _check_size(size)
        along = np.where(np.eye(size, dtype=bool), 1.0, correlation)
        return cls(shape, variance * across[:, :, None, None] * along, np.zeros((inputs, size)))

    def with_kernel(
        self,
        kernel: Array,
        *,
        shape: tuple[int, ...] | None = None,
        mean: Array | None = None,
        gaussian: bool = True,
        noise: float | None = None,
        level_known: bool = False,
    ) -> "Field":
        """The same kind of field with another kernel; its mean is 0 unless given."""
        shape = self.shape if shape is None else shape
        width = 1 if self.stationary else math.prod(shape)
        mean = np.zeros((kernel.shape[0], width)) if mean is None else mean
        noise = self.noise if noise is None else noise
        return replace(
            self, shape=shape, kernel=kernel, mean=mean, gaussian=gaussian, noise=noise, level_known=level_known
        )

    # --- what it says ---

    @property
    def positions(self) -> int:
        return math.prod(self.shape)

    @property
    def inputs(self) -> int:
        return int(self.kernel.shape[0])

    @property
    def profile(self) -> Array:
        """(inputs, T): the variance at every position; (inputs, 1) where all positions are alike."""
        if self.stationary:
            return np.array([[self.kernel[a, a, 0]] for a in range(self.inputs)])
        return np.array([np.diagonal(self.kernel[a, a]) for a in range(self.inputs)])

    @property
    def variance(self) -> float:
        """The mean over positions, of the first input."""
        return float(self.profile[0].mean())

    @property
    def total(self) -> float:
        """The sum over positions, of the first input: for a gradient its squared norm."""
        return self.variance * self.positions

    def position_correlation(self) -> float:
        """The mean of K(t, t′)/√(K(t, t) K(t′, t′)) over the pairs t ≠ t′ of the first input; 1 for one position."""
        size = self.positions
        if size == 1:
            return 1.0
        if self.stationary:
            row = self.kernel[0, 0]
            return float(row[1:].sum() / (size - 1) / row[0]) if row[0] > 0.0 else 0.0
        scale = np.sqrt(np.maximum(self.profile[0], 0.0))
        cosines = _over(self.kernel[0, 0], np.outer(scale, scale))
        return float((cosines.sum() - np.trace(cosines)) / (size * (size - 1)))

    def input_correlation(self) -> float | None:
        """The correlation of the first two inputs at the same position, averaged over positions; None for one input."""
        if self.inputs < 2:
            return None
        profile = self.profile
        joint = self.kernel[0, 1, :1] if self.stationary else np.diagonal(self.kernel[0, 1])
        return float(_over(joint, np.sqrt(np.maximum(profile[0] * profile[1], 0.0))).mean())

    def effective_positions(self, linear: float = 0.0) -> float:
        """(Σ_t K(t, t))²/Σ_tt′ K(t, t′)², of the first input: as how many independent positions an average counts.

        Squares of Gaussians covary like the square of their correlation; what covaries by the share `linear` like the
        correlation itself evens out less.
        """
        kernel, own = self.kernel[0, 0], self.profile[0]
        scale = own[0] if self.stationary else np.sqrt(np.outer(own, own))
        square = float(((1.0 - linear) * kernel**2 + linear * scale * abs(kernel)).sum())
        square *= self.positions if self.stationary else 1
        return self.total**2 / square if square > 0.0 else 1.0

    def sampling(self, width: int | None) -> float:
        """The relative variance of the mean square over `width` channels and all positions, kernel noise included."""
        if width is None or self.level_known:
            return 0.0
        return self.noise + (2.0 / (width * self.effective_positions()) if self.gaussian else 0.0)

    # --- other forms ---

    def scaled(self, factor: float) -> "Field":
        """Of the activations times `factor`."""
        return replace(self, kernel=factor**2 * self.kernel, mean=factor * self.mean)

    def first(self) -> "Field":
        """The first input alone."""
        if self.inputs == 1:
            return self
        return replace(self, kernel=self.kernel[:1, :1], mean=self.mean[:1])

    def full(self) -> "Field":
        """The full form of a stationary field."""
        if not self.stationary:
            return self
        _check_size(self.positions)
        index = displacement_index(self.shape)
        mean = np.repeat(self.mean, self.positions, axis=1)
        return replace(self, kernel=self.kernel[:, :, index], mean=mean, stationary=False)

    def averaged(self) -> "Field":
        """The stationary form: the mean over all pairs of each displacement, as on a torus."""
        if self.stationary:
            return self
        index = displacement_index(self.shape)
        kernel = np.empty(self.kernel.shape[:3])
        for a in range(self.inputs):
            for b in range(self.inputs):
                sums = np.bincount(index.ravel(), self.kernel[a, b].ravel(), minlength=self.positions)
                kernel[a, b] = sums / self.positions
        return replace(self, kernel=kernel, mean=self.mean.mean(1, keepdims=True), stationary=True)


def displacement_index(shape: tuple[int, ...]) -> Indices:
    """[t, t′] ↦ the flat index of the displacement t′ − t on a torus of this shape."""
    grid = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape))
    moved = (grid[:, None, :] - grid[:, :, None]) % np.array(shape)[:, None, None]
    return np.asarray(np.ravel_multi_index(tuple(moved), shape))


def _over(value: Array, scale: Array) -> Array:
    return np.divide(value, scale, out=np.zeros_like(value), where=scale > 0.0)


def _check_size(positions: int) -> None:
    if positions > _MOST_POSITIONS:
        raise ValueError(
            f"the covariance between all pairs of {positions} positions is more than fits into memory; take at most "
            f"{_MOST_POSITIONS} positions, or a stationary field (circular padding)."
        )
