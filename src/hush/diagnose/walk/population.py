"""One unit of a value, drawn many times, and seen at five places: what mean-field theory knows of a tensor.

    0  input a, position i        1  input a, position j        2  input b, position i        3  input b, position j
    4  input a, the position next to i

All units of a layer follow one law, and given the layer before they are independent; so averages over units are
averages over the draws. Elementwise functions apply draw by draw, whatever the function; sums of a stream and its
branch too, because the draws of a stream stay the same units. Behind a weight layer the law is a Gaussian whose
covariance between the five places is that of what the layer read.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hush.diagnose.walk.noise import Deviation
from hush.diagnose.walk.sites import Sites

__all__ = [
    "DRAWS",
    "PLACES",
    "Draws",
    "Population",
    "equal_places",
    "exchangeable_moments",
    "joined_places",
    "moments_of_places",
    "second_moments",
    "triangular_root",
]

PLACES = 5
DRAWS = 8192
# How many streams a new draw is kept orthogonal to.
_ANCHORS = 4


@dataclass(frozen=True)
class Population:
    """What is expected of one tensor.

    Attributes:
        values: (places, draws), in float64.
        sites: which entry of the tensor is which unit and position.
        node: its number on the record of the backward pass.
        scale: the relative deviation of the variance from which its units were drawn.
        gaussian: whether it is Gaussian over its units, as behind a weight layer.
        exact: whether |v|²/N is fixed (a norm), so that the draw of N units adds nothing to `scale`.
        measured: the tensor itself, where the population was taken from it.
        layers: the weight layers it comes from, one bit each.
        mixing: of a softmax over positions, how its weights overlap: Σ A_ij², Σ A_ij A_i'j, the same between inputs.
    """

    values: Tensor
    sites: Sites
    node: int
    scale: Deviation = field(default_factory=lambda: np.zeros(0))
    exact: bool = False
    gaussian: bool = False
    measured: Tensor | None = None
    layers: int = 0
    mixing: tuple[float, float, float] | None = None

    @property
    def units(self) -> int:
        return len(self.sites.units)

    @property
    def positions(self) -> int:
        return len(self.sites.positions)

    @property
    def variance(self) -> float:
        """The second moment over units."""
        return float(self.values[0].square().mean())

    @property
    def sampling(self) -> float:
        """The relative variance of |v|²/N over a draw of N units at all positions."""
        if self.exact:
            return 0.0
        squares = self.values.square()
        mean = squares[0].mean()
        if not float(mean) > 0.0:
            return 0.0
        own = float(squares[0].var() / mean**2)
        other = float(((squares[0] - mean) * (squares[1] - squares[1].mean())).mean() / mean**2)
        positions = self.positions
        return max(0.0, own / positions + (1.0 - 1.0 / positions) * other) / max(1, self.units)


def second_moments(values: Tensor) -> Tensor:
    """E[v v′] between the five places."""
    return values @ values.T / values.shape[1]


def exchangeable_moments(values: Tensor) -> Tensor:
    """The same where positions and inputs are as good as each other, which a sample shows only nearly.

    Two places have at least in common what two with other inputs and other positions have; without that, the noise of
    the sample would grow behind a norm that takes away the greater part, which all have in common.
    """
    k = second_moments(values)
    own, both = k[0, 0], 0.5 * (k[0, 3] + k[1, 2])
    far = torch.minimum(torch.maximum(0.5 * (k[0, 1] + k[2, 3]), both), own)
    other = torch.minimum(torch.maximum(0.5 * (k[0, 2] + k[1, 3]), both), own)
    beside = torch.minimum(torch.maximum(k[0, 4], far), own)
    return moments_of_places(own, far, other, both, beside)


def moments_of_places(own: Tensor, far: Tensor, other: Tensor, both: Tensor, beside: Tensor) -> Tensor:
    """E[v v′] between the places from its five values: at one place, at another position, at another input, at both,
    and at the position next to it."""
    rows = [
        [own, far, other, both, beside],
        [far, own, both, other, far],
        [other, both, own, far, both],
        [both, other, far, own, both],
        [beside, far, both, both, own],
    ]
    return torch.stack([torch.stack(row) for row in rows])


def equal_places(values: Tensor) -> Tensor:
    """With the same mean and variance at all places, after a rule that drew each for itself."""
    mean, spread = values.mean(1, keepdim=True), values.std(1, keepdim=True).clamp(min=1e-300)
    return (values - mean) * (spread[0] / spread) + mean[0]


def joined_places(values: Tensor, positions: int) -> Tensor:
    """With a single position, the places that differ in their position only are the same."""
    return values[[0, 0, 2, 2, 0]] if positions == 1 else values


class Draws:
    """Where the draws come from: scrambled points that cover the cube evenly, moved anew for every layer."""

    def __init__(self) -> None:
        engine: object = torch.quasirandom.SobolEngine(PLACES, scramble=True, seed=0)
        self._points: Tensor = engine.draw(DRAWS, dtype=torch.float64)  # type: ignore[attr-defined]
        self._generator = torch.Generator().manual_seed(0)
        self._anchors: deque[Tensor] = deque(maxlen=_ANCHORS)

    def anchor(self, values: Tensor) -> None:
        """Draws to which the next ones shall be orthogonal, because they will be added to them: a stream."""
        self._anchors.append(values)

    def gaussian(self, covariance: Tensor, beside: Tensor | None = None) -> Tensor:
        """(places, draws) of mean 0 and exactly this covariance, orthogonal to the anchors and to `beside`.

        Place 0 is a function of the first coordinate of the points alone, so shares of it are found without the error
        of a random sample.
        """
        shift = torch.rand(PLACES, generator=self._generator, dtype=torch.float64)
        order = torch.randperm(DRAWS, generator=self._generator)
        uniform = (self._points[order] + shift).frac().clamp(1e-12, 1.0 - 1e-12)
        normal = torch.special.ndtri(uniform).T
        aside = torch.cat([torch.ones(1, DRAWS, dtype=torch.float64), *self._anchors])
        if beside is not None:
            aside = torch.cat([aside, beside.reshape(-1, DRAWS)])
        # Without what they have in common with draws that are there already, which is an accident of the sample.
        aside = aside / aside.norm(dim=1, keepdim=True).clamp(min=1e-30)
        # Orthonormal rows from the few products between them, which is much faster than from the rows themselves.
        sizes, turns = torch.linalg.eigh(aside @ aside.T)
        there = sizes > 1e-9
        directions = (turns[:, there] / sizes[there].sqrt()).T @ aside
        normal = normal - (normal @ directions.T) @ directions
        white = torch.linalg.solve_triangular(torch.linalg.cholesky(second_moments(normal)), normal, upper=False)
        values: Tensor = triangular_root(covariance) @ white
        return values

    def order(self, seed: int) -> Tensor:
        """A permutation of the draws, the same for the same seed."""
        return torch.randperm(DRAWS, generator=torch.Generator().manual_seed(seed))

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._generator, dtype=torch.float64)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64)


def triangular_root(covariance: Tensor) -> Tensor:
    """A lower triangular A with A Aᵀ = covariance, which may be singular, or indefinite by rounding."""
    size = len(covariance)
    root = torch.zeros_like(covariance)
    for i in range(size):
        rest = float(covariance[i, i] - root[i, :i] @ root[i, :i])
        if rest <= 1e-12 * float(covariance[i, i].abs()):
            continue
        root[i, i] = rest**0.5
        root[i + 1 :, i] = (covariance[i + 1 :, i] - root[i + 1 :, :i] @ root[i, :i]) / root[i, i]
    # Rows whose correlations do not fit together are shrunk to the variance they should have.
    found = root.square().sum(1)
    return root * (covariance.diagonal().clamp(min=0.0) / found.clamp(min=1e-300)).sqrt()[:, None]
