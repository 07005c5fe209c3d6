"""A gated feed-forward layer's middle: φ(W_g x) ∘ (W_u x), two random matrices that read the same x.

K′ = E[φ(g) φ(g)ᵀ] ∘ K_u,      K_g = σ_g² K,  K_u = σ_u² K
G  = σ_g² E[φ′φ′ᵀ] ∘ K_u ∘ G′ + σ_u² E[φφᵀ] ∘ G′
"""

from dataclasses import dataclass
from typing import ClassVar

from hush.theory._checks import check_sigmas
from hush.theory.activations.protocol import Activation
from hush.theory.positions.elementwise import Activate, activated_kernel, read_by, slope_kernel
from hush.theory.positions.field import Field
from hush.theory.positions.step import GainNoise, Preactivation

__all__ = ["Gate"]


@dataclass(frozen=True)
class Gate:
    """x ← φ(W_g x) ∘ (W_u x), weights N(0, σ_g²/fan-in) and N(0, σ_u²/fan-in), no biases."""

    phi: Activation
    sigma_gate: float
    sigma_up: float
    mixes_channels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_sigmas(self.sigma_gate, self.sigma_up)

    def forward(self, field: Field, width: int | None = None) -> Field:
        gate, up = self._inner(field, width)
        active = Activate(self.phi).forward(gate, width)
        noise = active.noise + up.sampling(width)
        return up.with_kernel(active.kernel * up.kernel, gaussian=False, noise=noise)

    def backward(self, gradient: Field, field: Field) -> Field:
        gate, up = self._inner(field.first(), None)
        through_gate = self.sigma_gate**2 * slope_kernel(self.phi, gate) * up.kernel
        through_up = self.sigma_up**2 * activated_kernel(self.phi, gate)
        return gradient.with_kernel((through_gate + through_up) * gradient.kernel)

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        gate, up = self._inner(field, None)
        fresh = Activate(self.phi).gain_noise(gradient, gate, width).fresh
        return GainNoise(fresh + up.sampling(width) + 2.0 / (width * gradient.effective_positions()))

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        return (read_by(self.phi, self._inner(field, width)[0], width),)

    def _inner(self, field: Field, width: int | None) -> tuple[Field, Field]:
        """What the gate's activation reads, and what it multiplies."""
        noise = field.sampling(width)
        gate = field.with_kernel(self.sigma_gate**2 * field.kernel, noise=noise)
        return gate, field.with_kernel(self.sigma_up**2 * field.kernel, noise=noise)
