"""Run a model forward and backward with the hooks on, and take what they read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

from hush.diagnose.hooks import ActivationHooks
from hush.nn.quiet_run import quietly, tensors_in

__all__ = ["Loss", "gain_log10", "measure_model"]

Loss = Callable[[Any, Tensor | None], Tensor]


def measure_model(
    model: nn.Module, arguments: tuple[Tensor, ...], targets: Tensor | None, loss: Loss | None, chunk: int
) -> ActivationHooks:
    """Run the model forward and backward on `chunk` inputs at a time; nothing stays behind but the statistics."""
    generator = torch.Generator("cpu").manual_seed(0)
    count = arguments[0].shape[0]
    with torch.inference_mode(False), torch.enable_grad(), quietly(model), ActivationHooks(model) as hooks:
        for start in range(0, count, chunk):
            part = slice(start, start + chunk)
            hooks.batch = min(chunk, count - start)
            # Gradients are asked for, not accumulated: .grad stays as it is.
            leaves = [x[part].detach().clone().requires_grad_(x.is_floating_point()) for x in arguments]
            wanted = [x for x in leaves if x.requires_grad] or [p for p in model.parameters() if p.requires_grad]
            # A copy, so that a model that begins in place does not write to a leaf.
            outputs = model(*(x.clone() for x in leaves))
            value = _scalar(outputs, None if targets is None else targets[part], loss, generator)
            if not wanted:
                raise ValueError(
                    "nothing here takes a gradient: the inputs are integers and every parameter is frozen."
                )
            torch.autograd.grad(value, wanted, allow_unused=True)
    return hooks


def gain_log10(hooks: ActivationHooks) -> NDArray[np.float64]:
    """log10 |δ_l|²/|δ_L|², (layers, inputs), L the last layer with a gradient.

    −∞ where none arrives, +∞ where it is no longer finite.
    """
    for reading in hooks.readings:
        if not reading.squared_gradients:
            raise ValueError(
                f"no gradient reaches {reading.name!r}: what is differentiated does not depend on it, or forward "
                f"detaches it; pass a loss= that uses every output."
            )
    squares = [torch.cat(reading.squared_gradients).cpu().numpy() for reading in hooks.readings]
    if len({len(row) for row in squares}) > 1:
        odd = next(r for r, row in zip(hooks.readings, squares, strict=True) if len(row) != len(squares[0]))
        raise ValueError(
            f"{odd.name!r} was not called for every input: the path through the model depends on the data."
        )
    stacked = np.stack(squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log10(stacked)
        # Beside a dead last layer a residual stream goes on: what counts is the last layer that has a gradient.
        last = len(logs) - 1 - np.argmax(stacked[::-1] > 0.0, axis=0)
        gains = logs - logs[last, np.arange(logs.shape[1])]
    broken = ~np.isfinite(stacked)
    return np.where(broken | broken[-1], np.inf, np.where(stacked == 0.0, -np.inf, gains))


def _scalar(outputs: Any, targets: Tensor | None, loss: Loss | None, generator: torch.Generator) -> Tensor:
    if loss is not None:
        value = loss(outputs, targets)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"loss must give one number that depends on the outputs, summed over the batch, got {shown}."
            )
        return value
    found = [tensor for tensor in tensors_in(outputs) if tensor.requires_grad]
    if not found:
        raise ValueError(
            f"the model gives out {type(outputs).__name__}, in which there is no tensor that a gradient could start "
            f"from; pass loss=, a function (outputs, targets) ↦ scalar."
        )
    if targets is None:
        probes = (_normal(output, generator) for output in found)
        return torch.stack([(output * probe).sum() for output, probe in zip(found, probes, strict=True)]).sum()
    output = found[0]
    if targets.is_floating_point():
        if targets.shape != output.shape:
            raise ValueError(
                f"the targets have shape {tuple(targets.shape)} and the output {tuple(output.shape)}; give "
                f"targets of that shape, whole numbers for classes, or a loss=."
            )
        return 0.5 * (output - targets).square().sum()
    return _cross_entropy(output, targets)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """The same numbers whatever the device and dtype of the model, and whatever the defaults of torch."""
    return torch.randn(like.shape, generator=generator, dtype=torch.float32, device="cpu").to(like)


def _cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    classes = output.shape[1] if output.dim() > 1 else 0
    fits = output.dim() > 1 and targets.shape == (output.shape[0], *output.shape[2:])
    if not fits or int(targets.min()) < 0 or int(targets.max()) >= classes:
        raise ValueError(
            f"targets of {targets.dtype} are class numbers from 0 to {max(0, classes - 1)}, one for each input, for an "
            f"output of shape {tuple(output.shape)}; got shape {tuple(targets.shape)} with values from "
            f"{int(targets.min())} to {int(targets.max())}."
        )
    return F.cross_entropy(output, targets.long(), reduction="sum")
