"""Ways to bring back units that are never active, beside those that `hush.hold` has: for `benchmarks.dead_units`.

Each is an object whose `after_step` is called once per step, and which knows the blocks of a residual MLP. A unit is
dead when no input made it active in a whole window of steps. What stands in front of an activation is `up` in blocks of
two matrices; in blocks of one it is a norm, which has no weights to redraw and no bias to move.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["OTHER_REMEDIES", "Remedy"]


class Remedy:
    """Watches the largest input of each unit, and marks the dead units at the end of a window."""

    needs_up = False

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, window: int, strength: float) -> None:
        self.optimizer, self.window, self.strength = optimizer, window, strength
        self.blocks: list[Any] = list(getattr(model, "blocks"))  # noqa: B009
        self.dead = [torch.zeros(0) for _ in self.blocks]  # 1 for a unit that was silent in the last window
        self.largest = [torch.zeros(0) for _ in self.blocks]
        self.steps = 0
        for index, block in enumerate(self.blocks):
            self._watch(index, block.phi)

    def _watch(self, index: int, phi: nn.Module) -> None:
        def look(_module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            if not phi.training:
                return None
            top = args[0].detach().amax(0)
            if self.largest[index].numel() == 0:
                self.largest[index] = torch.full_like(top, -math.inf)
                self.dead[index] = torch.zeros_like(top)
            torch.maximum(self.largest[index], top - float(phi.threshold), out=self.largest[index])
            return self.changed(index, args[0], output)

        phi.register_forward_hook(look)

    def changed(self, index: int, x: Tensor, y: Tensor) -> Tensor | None:
        """What the activation gives out instead of y; None for y itself."""
        return None

    def after_step(self) -> None:
        self.steps += 1
        if self.steps % self.window:
            return
        for index, block in enumerate(self.blocks):
            silent = self.largest[index] <= 0.0
            with torch.no_grad():
                self.revive(block, index, silent)
            self.dead[index] = silent.float()
            self.largest[index].fill_(-math.inf)

    def revive(self, block: Any, index: int, silent: Tensor) -> None:
        """Once per window: what is done with silent units."""


class OwnThresholds(Remedy):
    """A silent unit's own threshold falls until its largest input passes it, by `strength` of the layer's rms.

    In blocks of two matrices this is `hush.hold(..., revive="bias")`; in blocks of one no bias is there to do it.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.offsets: list[Tensor | None] = [None] * len(self.blocks)
        for index, block in enumerate(self.blocks):
            block.phi.register_forward_pre_hook(self._added(index))

    def _added(self, index: int) -> Any:
        def add(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            offset = self.offsets[index]
            return None if offset is None else (args[0] + offset,)

        return add

    def revive(self, block: Any, index: int, silent: Tensor) -> None:
        known, gauge = self.offsets[index], block.phi._gauge
        fall = torch.where(silent, self.strength * gauge.scale - self.largest[index], 0.0)
        self.offsets[index] = fall if known is None else known + fall


class GradientToDead(Remedy):
    """Dead units pass a share of the gradient back as if they were open; values stay as they are."""

    def changed(self, index: int, x: Tensor, y: Tensor) -> Tensor | None:
        if not self.dead[index].any():
            return None
        return y + self.strength * self.dead[index] * (x - x.detach())


class GradientNear(Remedy):
    """All units pass a share of the gradient back where they lack less than half of the layer's rms."""

    def changed(self, index: int, x: Tensor, y: Tensor) -> Tensor | None:
        with torch.no_grad():
            threshold = float(self.blocks[index].phi.threshold)
            near = ((x <= threshold) & (x > threshold - 0.5 * x.square().mean().sqrt())).to(x.dtype)
        return y + self.strength * near * (x - x.detach())


class Pull(Remedy):
    """Dead units get a constant gradient upwards, a share of the rms of the layer's own."""

    def changed(self, index: int, x: Tensor, y: Tensor) -> Tensor | None:
        if x.requires_grad and self.dead[index].any():
            pull = self.strength * self.dead[index]
            x.register_hook(lambda g: g - pull * (g.square().sum() / (g != 0).sum().clamp(min=1)).sqrt())
        return None


class Redraw(Remedy):
    """Dead units' incoming weights as at the beginning, outgoing ones 0, and the optimizer forgets both.

    Only in the first `strength` windows, so that the last ones have time to learn.
    """

    needs_up = True

    def revive(self, block: Any, index: int, silent: Tensor) -> None:
        rows = silent.nonzero().flatten()
        if not len(rows) or len(rows) == len(silent) or self.steps > self.strength * self.window:
            return
        up, down = block.up, block.down
        up.weight[rows] = torch.randn(len(rows), up.weight.shape[1]) * up.weight[~silent].std()
        up.bias[rows] = up.bias[~silent].mean()
        down.weight[:, rows] = 0.0
        for p, where in ((up.weight, (rows,)), (up.bias, (rows,)), (down.weight, (slice(None), rows))):
            for value in self.optimizer.state[p].values():
                if value.shape == p.shape:
                    value[where] = 0.0


OTHER_REMEDIES: dict[str, tuple[type[Remedy], float]] = {
    "a threshold of its own, lowered": (OwnThresholds, 0.1),
    "the gradient passes dead units, x 1": (GradientToDead, 1.0),
    "the gradient passes just below the threshold, x 0.1": (GradientNear, 0.1),
    "a constant pull on dead units, x 0.01": (Pull, 0.01),
    "redrawn, in the first 8 windows": (Redraw, 8.0),
}
