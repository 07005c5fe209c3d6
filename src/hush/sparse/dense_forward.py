"""x Wᵀ + b, dense, by the faster of the two matrix libraries that torch has: its BLAS, or oneDNN.

At s = 0.95 a feed-forward block spends half of a step on this one product, so a tenth of it is worth a measurement:
`accelerate` times both on the shapes of the model's widening Linears, once in a process. Where nothing was measured, or
oneDNN is not at least 3 % faster, it is F.linear.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .crossover import forced

__all__ = ["dense_linear", "ensure_measured"]

_GAIN = 0.97
_TURNS = 5
_FLOPS = 1e9  # of a run that is timed
_LEAST_ROWS, _MOST_ROWS = 64, 512
_OPERATOR = "_linear_pointwise"  # in torch.ops.mkldnn, as torch's own compiler calls it

_faster: dict[tuple[int, int, int], bool] = {}  # outputs, inputs, threads


def dense_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """On a float32 matrix x and plain parameters; not recorded by autograd."""
    if _faster.get(_key(weight)) and x.shape[0] >= _LEAST_ROWS and _suits(x) and _suits(weight):
        return _by_onednn(x, weight, bias)
    return F.linear(x, weight, bias)


def ensure_measured(weights: Iterable[Tensor]) -> None:
    """Time both on weights of these shapes, as far as that has not been done with as many threads."""
    if forced() is not None or not (torch.backends.mkldnn.is_available() and _has_operator()):
        return
    for weight in weights:
        if weight.dim() == 2 and weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.numel():
            key = _key(weight)
            if key not in _faster:
                _faster[key] = _measure(key[0], key[1])


def _key(weight: Tensor) -> tuple[int, int, int]:
    return weight.shape[0], weight.shape[1], torch.get_num_threads()


def _suits(t: Tensor) -> bool:
    return t.dtype == torch.float32 and t.is_contiguous() and not t.is_neg() and bool(torch.backends.mkldnn.enabled)


def _has_operator() -> bool:
    return hasattr(torch.ops.mkldnn, _OPERATOR)


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = getattr(torch.ops.mkldnn, _OPERATOR)(x, weight, bias, "none", [], "")
    return out


@torch.no_grad()
def _measure(outputs: int, inputs: int) -> bool:
    rows = int(min(max(_FLOPS / (2 * outputs * inputs), _LEAST_ROWS), _MOST_ROWS))
    x, weight, bias = (
        torch.ones(shape, dtype=torch.float32, device="cpu")
        for shape in ((rows, inputs), (outputs, inputs), (outputs,))
    )
    works: list[Callable[[], Tensor]] = [lambda: F.linear(x, weight, bias), lambda: _by_onednn(x, weight, bias)]
    times: list[list[float]] = [[], []]
    try:
        for turn in range(1 + _TURNS):  # the first one warms up
            for work, kept in zip(works, times, strict=True):
                start = time.perf_counter()
                work()
                if turn:
                    kept.append(time.perf_counter() - start)
    except RuntimeError:  # an operator that is not what it was: nobody needs it
        return False
    blas, onednn = (statistics.median(t) for t in times)
    return onednn < _GAIN * blas
