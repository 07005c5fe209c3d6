"""What the thresholded forms of a model give out on a batch, and what their thresholds change."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from hush.nn.flow import WEIGHT_LAYERS
from hush.nn.quiet_run import Arguments, call_on, quietly, tensors_in
from hush.nn.sparsifying.bit_histogram import BitHistogram
from hush.nn.sparsifying.known_functions import KeepsLarge, dense_output

__all__ = ["LayerChange", "OutputDistance", "leaving_no_trace", "magnitudes", "main_output", "run", "watched_changes"]


@contextmanager
def leaving_no_trace(model: nn.Module) -> Iterator[None]:
    """In eval mode and without gradients; modes, random state and buffers are afterwards what they were."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    # The fused kernel of torch's transformer layers runs without hooks alone: with it two runs would differ by more
    # than what is measured.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with quietly(model), torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        with torch.no_grad():
            for buffer, before in kept:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


def run(model: nn.Module, arguments: Arguments) -> Any:
    """The model's outputs; it gets a copy, because one that overwrites its input must find it again."""
    return call_on(model, tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, arguments))


def magnitudes(
    model: nn.Module, modules: Sequence[KeepsLarge], batches: Sequence[Arguments]
) -> dict[KeepsLarge, BitHistogram]:
    """|φ(h)| of each module, before its threshold, with the thresholds of all others as they are."""
    found = {module: BitHistogram() for module in modules}

    def add(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], _: Tensor) -> None:
        assert isinstance(module, KeepsLarge)
        found[module].add(dense_output(module, _input(args, named)))

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_hook(add, with_kwargs=True).remove)
        for arguments in batches:
            run(model, arguments)
    return found


@dataclass
class LayerChange:
    """Sums over all batches of what one threshold changes.

    Attributes:
        reader: the name of the Linear or convolution that reads the module's output as it is; "" where none does.
        lost, whole: squares of φ(h) where it is silenced, and of all of φ(h); `reader_lost` and `reader_whole` of the
            output of the layer that reads it.
    """

    calls: int = 0
    zeros: int = 0
    elements: int = 0
    lost: float = 0.0
    whole: float = 0.0
    reader: str = ""
    reader_lost: float = 0.0
    reader_whole: float = 0.0

    @property
    def share(self) -> float | None:
        return self.zeros / self.elements if self.elements else None

    @property
    def error(self) -> float | None:
        return _ratio(self.lost, self.whole)

    @property
    def reader_error(self) -> float | None:
        return _ratio(self.reader_lost, self.reader_whole) if self.reader else None


@contextmanager
def watched_changes(model: nn.Module, modules: Sequence[KeepsLarge]) -> Iterator[dict[KeepsLarge, LayerChange]]:
    """What the runs inside tell of each module."""
    changes = {module: LayerChange() for module in modules}
    names = {module: name for name, module in model.named_modules()}
    latest: list[tuple[LayerChange, Tensor, Tensor]] = []  # of the module that ran last: what it gave out, and φ(h)

    def after(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
        assert isinstance(module, KeepsLarge)
        change, full = changes[module], dense_output(module, _input(args, named))
        change.calls += 1
        change.zeros += output.numel() - int(torch.count_nonzero(output))
        change.elements += output.numel()
        change.lost += _squares(full.double() - output.double())
        change.whole += _squares(full)
        latest[:] = [(change, output, full)]

    def before(layer: nn.Module, args: tuple[Any, ...]) -> None:
        if not latest or not args or not _is_same(args[0], latest[0][1]):
            return
        change, output, full = latest[0]
        change.reader = change.reader or names[layer]
        forward = type(layer).forward
        whole = forward(layer, full)
        change.reader_lost += _squares(whole.double() - forward(layer, output).double())
        change.reader_whole += _squares(whole)

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        for layer in model.modules():
            # Hugging Face's Conv1D is a Linear with its weight transposed.
            if isinstance(layer, WEIGHT_LAYERS) or type(layer).__name__ == "Conv1D":
                stack.callback(layer.register_forward_pre_hook(before).remove)
        yield changes


class OutputDistance:
    """How far the outputs of the model are from those it had, summed over batches."""

    def __init__(self) -> None:
        self._lost = self._whole = self._divergence = 0.0
        self._agreeing = self._rows = 0

    def add(self, before: Tensor, after: Tensor) -> None:
        a, b = before.double(), after.double()
        self._lost += _squares(a - b)
        self._whole += _squares(a)
        if a.dim() < 2 or a.shape[-1] < 2:
            return
        p, q = a.log_softmax(-1), b.log_softmax(-1)
        self._divergence += float((p.exp() * (p - q)).sum())
        self._agreeing += int((a.argmax(-1) == b.argmax(-1)).sum())
        self._rows += a[..., 0].numel()

    @property
    def relative_error(self) -> float | None:
        return _ratio(self._lost, self._whole)

    @property
    def divergence(self) -> float | None:
        """KL(before ‖ after) in nats, of outputs as logits over their last dimension."""
        return self._divergence / self._rows if self._rows else None

    @property
    def agreement(self) -> float | None:
        """How often the largest logit is the same."""
        return self._agreeing / self._rows if self._rows else None


def main_output(outputs: Any) -> Tensor | None:
    """The logits, where they are called so, else the first floating-point tensor that a model gives out."""
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    return next((found for found in tensors_in(outputs) if found.is_floating_point()), None)


def _input(args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    x: Tensor = args[0] if args else next(iter(named.values()))
    return x


def _is_same(a: Any, b: Tensor) -> bool:
    """One tensor, or the same values in the same places, as a dropout in eval mode hands them on."""
    return isinstance(a, Tensor) and (a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape))


def _squares(x: Tensor) -> float:
    return float(x.double().square().sum())


def _ratio(lost: float, whole: float) -> float | None:
    return math.sqrt(lost / whole) if whole > 0.0 else None
