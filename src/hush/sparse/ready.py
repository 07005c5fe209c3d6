"""A native chain over a link's parameters as they are now, and whether they still are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from . import _engine, _native
from .activation import Activation

__all__ = ["Ready"]


class Ready:
    """What is asked of a run of layers at each call, found out once.

    Weights that are not input-major are laid out so, in place.
    """

    def __init__(
        self, linears: Sequence[nn.Linear], activations: Sequence[nn.Module], phis: Sequence[Activation]
    ) -> None:
        for linear in linears:
            if not _engine.is_input_major(linear.weight):
                linear.weight.data = _engine.input_major(linear.weight.data)
        self.weights: list[Tensor] = [m.weight for m in linears]
        self.biases: list[Tensor | None] = [m.bias for m in linears]
        self.parameters = self.weights + [b for b in self.biases if b is not None]
        self._memory = [p.detach() for p in self.parameters]  # stays ours, so no other tensor comes to lie there
        self._watch(linears, activations)
        self.inputs, self.outputs = int(self.weights[0].shape[1]), int(self.weights[-1].shape[0])
        self.units = sum(w.shape[1] for w in self.weights)
        self.widest = max(max(w.shape) for w in self.weights)
        cpu = all(p.device.type == "cpu" for p in self.parameters)
        plain = all(b is None or b.dtype == torch.float32 for b in self.biases)
        fits = all(a.shape[0] == b.shape[1] for a, b in itertools.pairwise(self.weights))
        dtypes = {w.dtype for w in self.weights}
        self.infers = cpu and plain and fits and dtypes <= {torch.float32, torch.bfloat16}
        self.trains = self.infers and dtypes == {torch.float32}
        self.chain = _engine.build(self.weights, self.biases, phis) if self.infers else _native.Chain()

    def _watch(self, linears: Sequence[nn.Linear], activations: Sequence[nn.Module]) -> None:
        named: list[tuple[dict[str, Any], str]] = [(m._parameters, "weight") for m in linears]
        named += [(m._parameters, "bias") for m in linears if m.bias is not None]
        tensors = len(named)
        named += [(m._parameters, "bias") for m in linears if m.bias is None]
        named += [(m.__dict__, key) for m in activations for key in ("threshold", "clip") if key in m.__dict__]
        self._dicts, self._keys = [d for d, _ in named], [key for _, key in named]
        self._values = [d[key] for d, key in named]
        self._addresses = [t.data_ptr() for t in self._values[:tensors]]

    def holds(self) -> bool:
        """Whether no parameter was replaced, moved or reloaded elsewhere, and no threshold changed.

        Looked up one by one at each call, in C++: nothing else tells of it. 100 layers take about 15 µs.
        """
        return _native.same(self._dicts, self._keys, self._values, self._addresses)
