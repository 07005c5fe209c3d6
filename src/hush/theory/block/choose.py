"""From the arguments of a public function to the block it is about."""

from typing import cast

from hush.theory.activations.protocol import Activation
from hush.theory.block.chain import Chain
from hush.theory.block.protocol import Block

__all__ = ["block_from"]


def block_from(
    subject: Activation | Block, sigma_w: float | None, sigma_b: float | None, positions: int | None = None
) -> Block:
    """The block itself where `subject` is one, else the plain chain of the activation at σ_w and σ_b.

    Raises:
        ValueError: if a block comes with σ_w, σ_b or positions of its own, or an activation without σ_w and σ_b.
    """
    if hasattr(subject, "variance_slope"):
        if sigma_w is not None or sigma_b is not None or positions is not None:
            raise ValueError("a block brings its own sigma_w, sigma_b and positions; give it alone.")
        return cast(Block, subject)
    if sigma_w is None or sigma_b is None:
        raise ValueError(f"an activation needs sigma_w and sigma_b beside it, got {sigma_w} and {sigma_b}.")
    return Chain(subject, sigma_w, sigma_b, 1 if positions is None else positions)
