"""A transformer layer: an attention branch and a feed-forward branch on one stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hush.theory.activations.protocol import Activation
from hush.theory.positions.attention import Attention
from hush.theory.positions.branch import Branch
from hush.theory.positions.convolution import Dense
from hush.theory.positions.elementwise import Activate
from hush.theory.positions.gate import Gate
from hush.theory.positions.normalise import Normalise
from hush.theory.positions.stack import StackOfSteps
from hush.theory.positions.step import Step

__all__ = ["TransformerLayer", "feed_forward", "gated_feed_forward"]


def feed_forward(
    phi: Activation, sigma_in: float, sigma_out: float, *, sigma_b_in: float = 0.0, sigma_b_out: float = 0.0
) -> tuple[Step, ...]:
    """x ← W₂ φ(W₁ x + b₁) + b₂ at each position."""
    return Dense(sigma_in, sigma_b_in), Activate(phi), Dense(sigma_out, sigma_b_out)


def gated_feed_forward(phi: Activation, sigma_gate: float, sigma_up: float, sigma_out: float) -> tuple[Step, ...]:
    """x ← W₂ (φ(W_g x) ∘ (W_u x)) at each position."""
    return Gate(phi, sigma_gate, sigma_up), Dense(sigma_out)


@dataclass(frozen=True)
class TransformerLayer(StackOfSteps):
    """x ← x + β attention(n(x)), then x ← x + β feed_forward(n(x)); post-norm: x ← n(x + β branch(x)).

    Arguments:
        attention: the mixing of positions.
        feed_forward: the steps of the second branch, as `feed_forward` or `gated_feed_forward` return them.
        norm: "rms", "layer" or None.
        post_norm: whether the norm stands behind the addition.
        scale: β of both branches.
    """

    attention: Attention
    feed_forward: tuple[Step, ...]
    norm: Literal["rms", "layer"] | None = "rms"
    post_norm: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.norm not in ("rms", "layer", None):
            raise ValueError(f"a norm is 'rms', 'layer' or None, got {self.norm!r}.")
        if self.post_norm and self.norm is None:
            raise ValueError("post_norm needs a norm, 'rms' or 'layer', got None.")

    @property
    def steps(self) -> Sequence[Step]:
        found: list[Step] = []
        for branch in ((self.attention,), self.feed_forward):
            front = (Normalise(self.norm),) if self.norm is not None and not self.post_norm else ()
            found.append(Branch((*front, *branch), self.scale))
            if self.norm is not None and self.post_norm:
                found.append(Normalise(self.norm))
        return tuple(found)

    @property
    def mixes_channels(self) -> bool:
        return False
