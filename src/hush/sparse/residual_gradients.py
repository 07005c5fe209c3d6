"""A residual chain with gradients: what a run of it is made of, for `hush.sparse.gradients`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .backend import Program
from .gradients import Attached, Call
from .residual_block import ResidualBlock, dense_residual, with_parameters
from .step_plan import PARTS, Part, StepPlan

__all__ = ["ResidualCall"]


@dataclass(frozen=True)
class ResidualCall(Call):
    """`blocks` stand for their form; the tensors are those of `parameters`, whose places `places` names.

    `before_biases`: how many of the parameters are no biases, which stand behind all others.
    """

    blocks: tuple[ResidualBlock, ...] = ()
    places: tuple[tuple[int, Part], ...] = ()
    before_biases: int = 0

    @property
    def kept(self) -> int:
        return self.before_biases

    def place(self, parameter: int) -> tuple[int, Part]:
        return self.places[parameter]

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
        return dense_residual(h, with_parameters(self.blocks, self.places, parameters))
