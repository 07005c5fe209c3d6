"""The Lightning module of a run: network, loss, optimizer, schedule, and the moment at which it comes apart."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from lightning.pytorch import LightningModule
from torch import Tensor, nn

import hush.sparse
from hush.diagnose.hooks import ActivationHooks
from hush.train.config import TrainConfig
from hush.train.tables import is_watched

__all__ = ["Diverged", "Task", "clip_layers_"]


@dataclass
class Diverged(Exception):  # noqa: N818 - a result that ends the loop, no error
    """Training came apart: where it was first seen. `layer` counts from 1; depth + 1 is the head."""

    step: int
    layer: int
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} at step {self.step}, layer {self.layer}"


class Task(LightningModule):
    """Cross entropy by SGD or AdamW; raises `Diverged` when the loss or a watched gradient is not finite."""

    def __init__(self, config: TrainConfig, model: nn.Module, steps: int) -> None:
        super().__init__()
        self.config = config
        if config.engine == "sparse" and config.arch in ("cnn", "resnet"):
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the engine reads images
        # Whether the crossover says sparse or dense depends on the clock; a run must not, hence adaptive=False.
        if config.engine == "sparse" and config.devices > 1:
            hush.sparse.accelerate(model, adaptive=False)
        self.model = model
        self._fused = False
        self.steps = steps
        self.loss = math.nan  # of the last step, for whoever reports

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        x, y = batch
        # Of a text every position has its answer.
        loss = nn.functional.cross_entropy(self.model(x).flatten(0, -2), y.flatten())
        self.loss = float(loss.detach())
        if self._anywhere(not math.isfinite(self.loss)):
            raise Diverged(self.global_step, self._first_broken_layer(x), f"the loss is {self.loss}")
        return loss

    def _anywhere(self, broken: bool) -> bool:
        """Whether it holds in any process: all must leave the loop together."""
        if self.trainer.world_size == 1:
            return broken
        flag = torch.tensor(float(broken))
        torch.distributed.all_reduce(flag)
        return bool(flag)

    @torch.no_grad()
    def _first_broken_layer(self, x: Tensor) -> int:
        with ActivationHooks(self.model) as hooks:
            self.model(x)
        for layer, reading in enumerate(hooks.readings, start=1):
            if not bool(torch.cat(reading.q).isfinite().all()):
                return layer
        return len(hooks.readings) + 1

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.config.layer_clip is None:
            return
        broken = clip_layers_(self.model, self.config.layer_clip)
        if broken is not None:
            raise Diverged(self.global_step, broken, "the gradient is not finite")

    def configure_optimizers(self) -> Any:
        config = self.config
        optimizer: torch.optim.Optimizer
        if config.optimizer == "sgd":
            optimizer = torch.optim.SGD(
                self._parameters_and_rates(),
                lr=config.lr,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
            )
        else:
            optimizer = torch.optim.AdamW(self._parameters_and_rates(), lr=config.lr, weight_decay=config.weight_decay)
        if config.engine == "sparse" and config.devices == 1:
            self._fused = config.layer_clip is None  # clipping must see the gradients first
            fused = {"optimizer": optimizer} if self._fused else {"layout": "input_major"}
            hush.sparse.accelerate(self.model, adaptive=False, **fused)
        if config.schedule == "constant" and not config.warmup:
            return optimizer
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _parameters_and_rates(self) -> Any:
        """All parameters, or in two groups where the head has a rate of its own."""
        if self.config.head_rate == 1.0:
            return self.parameters()
        head = self.model.get_submodule("head")
        of_head = {id(p) for p in head.parameters()}
        body = [p for p in self.parameters() if id(p) not in of_head]
        return [{"params": body}, {"params": list(head.parameters()), "lr": self.config.head_rate * self.config.lr}]

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """With the update of the sparse layers inside it, where that is possible; Lightning then steps the rest.

        At a step whose layers are recorded, the gradients must be there to be read.
        """
        if self._fused and not is_watched(self.global_step, self.config.watch):
            hush.sparse.fused_backward(self.model, loss)
        else:
            super().backward(loss, *args, **kwargs)

    def _rate(self, step: int) -> float:
        """The share of the learning rate at a step: linear warm-up, then constant or half a cosine down to 0.

        Restarts share the steps equally; each begins anew with its warm-up, to half the peak of the one before.
        """
        length = max(1, self.steps) / (1 + self.config.restarts)
        turn = min(self.config.restarts, int(step / length))
        peak, since = 0.5**turn, step - turn * length
        if since < self.config.warmup:
            return peak * (since + 1) / self.config.warmup
        if self.config.schedule == "constant":
            return peak
        done = (since - self.config.warmup) / max(1, length - self.config.warmup)
        return peak * 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


@torch.no_grad()
def clip_layers_(model: nn.Module, limit: float) -> int | None:
    """g_l ← g_l · min(1, limit / |g_l|), g_l the gradient of layer l's weight and bias together.

    Where a norm is not finite nothing is changed, and the last such layer, counted from 1, is returned: the backward
    pass met it first.
    """
    layers = [[p.grad for p in module.parameters(recurse=False) if p.grad is not None] for module in model.modules()]
    layers = [gradients for gradients in layers if gradients]
    flat = [g for gradients in layers for g in gradients]
    if not flat:
        return None
    norms = torch.stack(torch._foreach_norm(flat)).double()
    owner = torch.tensor([i for i, gradients in enumerate(layers) for _ in gradients], device=norms.device)
    squares = torch.zeros(len(layers), device=norms.device, dtype=norms.dtype).index_add_(0, owner, norms.square())
    broken = squares.isfinite().logical_not().nonzero()
    if len(broken):
        return int(broken[-1]) + 1
    factors = (limit / squares.sqrt()).clamp(max=1.0).to(flat[0].dtype)[owner]
    torch._foreach_mul_(flat, list(factors.unbind()))
    return None
