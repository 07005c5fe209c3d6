"""Run a model forward and backward with the hooks on, and take what they read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

from hush.diagnose.arguments import Batch
from hush.diagnose.hooks import ActivationHooks, Wanted
from hush.diagnose.reading import Reading
from hush.nn.quiet_run import batch_statistics, quietly, tensors_in

__all__ = ["Loss", "Measured", "gain_log10", "measure_model", "takes_batch_statistics"]

Loss = Callable[[Any, Tensor | None], Tensor]


@dataclass(frozen=True)
class Measured:
    """What was read over all inputs.

    Attributes:
        readings, streams: of the activations, and of the sums of a stream and its branch.
        head, output: what the head reads, and what the model gives out.
        first_squares: |x|²/N of each input of the first weight layer that ran.
        batched: whether a BatchNorm took the statistics of each chunk.
    """

    readings: list[Reading]
    streams: list[Reading]
    head: Reading | None
    output: Reading
    first_squares: list[Tensor]
    batched: bool


def measure_model(
    model: nn.Module,
    arguments: Batch,
    targets: Tensor | None,
    loss: Loss | None,
    chunk: int,
    wanted: Wanted | None = None,
) -> Measured:
    """Run the model forward and backward on `chunk` inputs at a time; nothing stays behind but the statistics."""
    generator = torch.Generator("cpu").manual_seed(0)
    count = arguments.count
    batched = takes_batch_statistics(model, min(chunk, count))
    outputs_seen = Reading("output", "", -1)
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        quietly(model),
        batch_statistics(model) if batched else nullcontext(),
        ActivationHooks(model, wanted) as hooks,
    ):
        for start, stop in _chunks(count, chunk, batched):
            # Gradients are asked for, not accumulated: .grad stays as it is.
            part, leaves = arguments.part(start, stop).fresh()
            hooks.batch = part.count
            taking = leaves or [p for p in model.parameters() if p.requires_grad]
            outputs = model(*part.args, **part.kwargs)
            value = _scalar(outputs, None if targets is None else targets[start:stop], loss, generator)
            if not taking:
                raise ValueError(
                    "nothing here takes a gradient: the inputs are integers and every parameter is frozen."
                )
            _read_outputs(outputs, outputs_seen, part.count)
            torch.autograd.grad(value, taking, allow_unused=True)
    return Measured(hooks.readings, hooks.streams, hooks.head, outputs_seen, hooks.first_squares, batched)


def takes_batch_statistics(model: nn.Module, batch: int) -> bool:
    """Whether there is a BatchNorm, and a batch for it: one input alone has no statistics."""
    norms = (m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    return batch > 1 and any(not isinstance(norm, nn.SyncBatchNorm) for norm in norms)


def _chunks(count: int, chunk: int, batched: bool) -> Iterator[tuple[int, int]]:
    """(start, stop) of every chunk; with batch statistics none is left with a single input."""
    starts = list(range(0, count, chunk))
    if batched and len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return zip(starts, [*starts[1:], count], strict=True)


def _read_outputs(outputs: Any, reading: Reading, count: int) -> None:
    """The first output that takes a gradient, as far as its inputs can be told apart."""
    found = next((tensor.detach() for tensor in tensors_in(outputs) if tensor.requires_grad), None)
    if found is not None and found.dim() > 1 and found.shape[0] == count:
        reading.read_input(found, count)


def gain_log10(readings: Sequence[Reading]) -> NDArray[np.float64]:
    """log10 |δ_l|²/|δ_L|², (layers, inputs), L the last layer with a gradient.

    −∞ where none arrives, +∞ where it is no longer finite.
    """
    for reading in readings:
        if not reading.squared_gradients:
            raise ValueError(
                f"no gradient reaches {reading.name!r}: what is differentiated does not depend on it, or forward "
                f"detaches it; pass a loss= that uses every output."
            )
    squares = [torch.cat(reading.squared_gradients).cpu().numpy() for reading in readings]
    if len({len(row) for row in squares}) > 1:
        odd = next(r for r, row in zip(readings, squares, strict=True) if len(row) != len(squares[0]))
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
