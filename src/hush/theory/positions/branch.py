"""A residual stream: x ← shortcut(x) + β·branch(x), branch and shortcut themselves lists of steps.

Behind a random matrix the branch's channels know nothing of the stream's, so the two add up: K′ = K_s + β² K_b, and
what their means have in common, β(m_s m_bᵀ + m_b m_sᵀ), for a branch that ends in an activation. So do the gradients.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from hush.theory.positions.field import Field
from hush.theory.positions.step import GainNoise, Preactivation, Step

__all__ = ["Branch", "through"]

_Fields = dict[tuple[tuple[Step, ...], int | None], list[Field]]
_KNOWN: WeakKeyDictionary[Field, _Fields] = WeakKeyDictionary()


@dataclass(frozen=True)
class Branch:
    """x ← shortcut(x) + scale·steps(x).

    Arguments:
        steps: the branch; one of them at least must be random (Dense, Convolution, Attention, Gate).
        scale: β.
        shortcut: what the stream itself passes (a strided convolution, a pooling); empty for the identity.
    """

    steps: Sequence[Step]
    scale: float = 1.0
    shortcut: Sequence[Step] = ()

    def __post_init__(self) -> None:
        # Lists are taken, but a step must be hashable.
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "shortcut", tuple(self.shortcut))
        if not any(step.mixes_channels for step in self.steps):
            raise ValueError("a branch without a random matrix is not independent of its stream; put a Dense into it.")

    @property
    def mixes_channels(self) -> bool:
        """Not without its stream: what the shortcut hands on is what came in."""
        return any(step.mixes_channels for step in self.shortcut)

    def forward(self, field: Field, width: int | None = None) -> Field:
        stream, branch = through(self.shortcut, field, width)[-1], through(self.steps, field, width)[-1]
        if stream.shape != branch.shape:
            raise ValueError(f"a branch of shape {branch.shape} cannot be added to a stream of {stream.shape}.")
        branch = branch.scaled(self.scale)
        kernel = stream.kernel + branch.kernel
        if stream.mean.any() and branch.mean.any():
            common = stream.mean[:, None, :, None] * branch.mean[None, :, None, :]
            common = common + branch.mean[:, None, :, None] * stream.mean[None, :, None, :]
            kernel = kernel + (common[:, :, 0] if field.stationary else common)
        return stream.with_kernel(
            kernel,
            mean=stream.mean + branch.mean,
            gaussian=stream.gaussian and branch.gaussian,
            noise=_common_noise(stream, branch),
        )

    def backward(self, gradient: Field, field: Field) -> Field:
        stream, branch = self._gradients(gradient, field)
        return stream.with_kernel(stream.kernel + branch.kernel)

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        """The branch's noise by its share, and the chance overlap of the two gradients, 4g/((1 + g)² N T_g)."""
        stream, branch = self._gradients(gradient, field)
        total = stream.total + branch.total
        if total <= 0.0:
            return GainNoise(0.0)
        shares = stream.total / total, branch.total / total
        fresh, common = 4.0 * shares[0] * shares[1] / (width * gradient.effective_positions()), 0.0
        for steps, share in ((self.shortcut, shares[0]), (self.steps, shares[1])):
            fields, behind = through(steps, field), gradient
            for step, read in zip(reversed(steps), reversed(fields[:-1]), strict=True):
                noise = step.gain_noise(behind, read, width)
                fresh, common = fresh + share**2 * noise.fresh, common + share * noise.common
                behind = step.backward(behind, read)
        return GainNoise(fresh, common)

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        found: list[Preactivation] = []
        for steps in (self.shortcut, self.steps):
            for step, read in zip(steps, through(steps, field, width), strict=False):
                found.extend(step.preactivations(read, width))
        return tuple(found)

    def _gradients(self, gradient: Field, field: Field) -> tuple[Field, Field]:
        """Of the shortcut and of the branch."""
        back = []
        for steps, scale in ((self.shortcut, 1.0), (self.steps, self.scale)):
            behind = gradient.scaled(scale)
            for step, read in zip(reversed(steps), reversed(through(steps, field)[:-1]), strict=True):
                behind = step.backward(behind, read)
            back.append(behind)
        return back[0], back[1]


def _common_noise(stream: Field, branch: Field) -> float:
    """Their deviations add up, not their variances: every branch reads the same channels of the same stream."""
    total = stream.variance + branch.variance
    if total <= 0.0:
        return 0.0
    return ((stream.variance * math.sqrt(stream.noise) + branch.variance * math.sqrt(branch.noise)) / total) ** 2


def through(steps: Sequence[Step], field: Field, width: int | None = None) -> list[Field]:
    """The field in front of each step, and behind the last; remembered as long as `field` lives.

    The backward pass asks for the fields of the forward pass again, without a width, and any width's will do.
    """
    known = _KNOWN.setdefault(field, {})
    members = tuple(steps)
    if (members, width) not in known:
        usable = [found for (others, _), found in known.items() if others == members] if width is None else []
        known[members, width] = usable[0] if usable else _behind(members, field, width)
    # The field itself is no part of what is remembered, or it would keep itself alive.
    return [field, *known[members, width]]


def _behind(steps: tuple[Step, ...], field: Field, width: int | None) -> list[Field]:
    fields = []
    for step in steps:
        field = step.forward(field, width)
        fields.append(field)
    return fields
