"""A residual chain with gradients: what a run of it is made of, for `hush.sparse.gradients`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from .backend import Program
from .gradients import Attached, Call
from .residual_block import ResidualBlock, dense_residual, with_parameters
from .step_plan import PARTS, Part, StepPlan, place_of

__all__ = ["ResidualCall"]


@dataclass(frozen=True)
class ResidualCall(Call):
    """`blocks` stand for their form; the tensors are those of `parameters`, whose layers and parts `parts` names.

    `before_biases`: how many of the parameters are no biases, which stand behind all others.
    """

    blocks: tuple[ResidualBlock, ...] = ()
    parts: tuple[tuple[int, Part], ...] = ()
    before_biases: int = 0

    @property
    def kept(self) -> int:
        return self.before_biases

    def read_again(self, edge: bool, needed: Sequence[bool]) -> Sequence[bool]:
        return [True] * self.before_biases

    def place(self, parameter: int) -> tuple[int, Part]:
        return self.parts[parameter]

    def places(self) -> tuple[int, ...]:
        return _places(self.parts)

    def new_plan(self) -> StepPlan:
        return StepPlan(len(self.blocks), len(PARTS))

    def with_torch(
        self,
        program: Program,
        edge: Tensor | None,
        x: Tensor | None,
        saved: Tensor,
        parameters: Sequence[Tensor],
        batch: int,
    ) -> Tensor:
        h = program.first_activations(saved, batch)
        if edge is not None:
            h = Attached.apply(edge, h, torch.ones_like(h))  # type: ignore[no-untyped-call]
        return dense_residual(h, with_parameters(self.blocks, self.parts, parameters))


@lru_cache(maxsize=64)
def _places(parts: tuple[tuple[int, Part], ...]) -> tuple[int, ...]:
    return tuple(place_of(layer, part, len(PARTS)) for layer, part in parts)
