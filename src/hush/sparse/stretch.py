"""A stretch: consecutive activation → Linear pairs of a model that run as one program.

It starts with an activation, or it is a single Linear that reads an input with zeros in it, wherever they came from.
The modules stay the owners of everything; a stretch only refers to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hush.nn.centering.centered_layer import centered_layer_of

from . import crossover
from .activation import Activation, activation_of
from .backend import Backend, Program, takes_activations
from .conditions import has_memory, is_plain
from .gradients import Call, Centered, run_training
from .layout import on_large_pages, storage_address
from .settings import Settings
from .sight import Sight
from .witness import Witness

__all__ = ["LOOKS", "Prepared", "Stretch"]

LOOKS = 32  # calls between two looks at the density while a stretch is too dense


class Stretch:
    """h ↦ W_L φ_L(… W₁ φ₁(h) + b₁ …) + b_L over modules of a model.

    Without activations it is x ↦ W x + b of one Linear, by the zeros of x.
    """

    def __init__(self, activations: Sequence[nn.Module], linears: Sequence[nn.Module], settings: Settings) -> None:
        self.activations, self.linears, self.settings = list(activations), list(linears), settings
        self.density = 0.0  # of the last sparse run
        self._calls = 0
        self._prepared: Prepared | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy looks at its own modules and their memory.
        return {**self.__dict__, "_prepared": None}

    def run(self, h: Tensor, backend: Backend) -> Tensor | None:
        """The output, or None where torch is to run the modules."""
        prepared = self._prepare(backend)
        width = h.shape[-1]
        training = torch.is_grad_enabled() and (h.requires_grad or any(p.requires_grad for p in prepared.parameters))
        if width != prepared.inputs or not (prepared.trains if training else prepared.infers):
            return None
        if training and self.settings.frozen:
            raise ValueError("This model was accelerated with frozen=True, for inference only; use torch.no_grad().")
        rows = h if h.dim() == 2 else h.reshape(-1, width)
        if not self._pays(h, rows.shape[0], prepared, training):
            return None
        if training:
            out = run_training(rows, self._call(h, prepared, rows.shape[0]), prepared.parameters)
        else:
            out, active = prepared.program.infer(rows)
            self._note(active, rows.shape[0] * prepared.units)
        return out if h.dim() == 2 else out.reshape(*h.shape[:-1], prepared.outputs)

    def _call(self, h: Tensor, prepared: Prepared, batch: int) -> Call:
        reads_zeros = not self.activations
        sight = Sight.of(h) if reads_zeros and h.requires_grad else None
        units = batch * prepared.units
        return Call(
            prepared.program,
            prepared.phis,
            prepared.bias_layers,
            reads_zeros,
            sight,
            partial(self._note_call, sight, units),
            prepared.memories,
            self._centered(),
        )

    def _centered(self) -> tuple[Centered | None, ...]:
        """Of the Linears in training mode; of a single one torch runs the hook itself, behind this forward."""
        if not self.activations:
            return ()
        found = [centered_layer_of(m) if m.training else None for m in self.linears]
        pairs = zip(self.linears, found, strict=True)
        return tuple(None if layer is None else Centered(m, layer) for m, layer in pairs) if any(found) else ()

    def _prepare(self, backend: Backend) -> Prepared:
        prepared = self._prepared
        known = prepared is not None and prepared.backend is backend
        if prepared is None or not known or (self.settings.watch and not prepared.witness.holds()):
            prepared = self._prepared = self._look(backend)
        return prepared

    def _look(self, backend: Backend) -> Prepared:
        return Prepared(self.activations, self.linears, self.settings, backend)

    def _note_call(self, sight: Sight | None, units: int, active: int) -> None:
        self._note(active, units)
        if sight is not None:
            sight.count(active)

    def _note(self, active: int, units: int) -> None:
        self.density = active / units if units else 0.0

    def _limit(self, prepared: Prepared, batch: int, training: bool) -> float:
        """The density up to which the stretch pays."""
        return crossover.limit(prepared.widest, batch, training, prepared.turns) if self.settings.adaptive else 1.0

    def _pays(self, h: Tensor, batch: int, prepared: Prepared, training: bool) -> bool:
        limit = self._limit(prepared, batch, training)
        if limit >= 1.0:
            return True
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            # Checkpointing runs the same input twice and must meet the same decision, so only the input decides.
            return self._density_of(h, prepared) <= limit
        self._calls += 1
        first_look = self._calls == 1 and not self.activations  # most Linears of a model read no zeros at all
        if first_look or (self.density > limit and self._calls % LOOKS == 0):
            self.density = self._density_of(h, prepared)
        return self.density <= limit

    @torch.no_grad()
    def _density_of(self, h: Tensor, prepared: Prepared) -> float:
        """Of the first layer, which stands for the stretch."""
        if not h.numel():
            return 0.0
        return float(torch.count_nonzero(self._first_activations(h.detach(), prepared))) / h.numel()

    def _first_activations(self, h: Tensor, prepared: Prepared) -> Tensor:
        return prepared.phis[0](h) if self.activations else h


class Prepared:
    """A program over a stretch's parameters as they are now, and the witness that they still are."""

    def __init__(
        self,
        activations: Sequence[nn.Module],
        linears: Sequence[nn.Module],
        settings: Settings,
        backend: Backend,
    ) -> None:
        weights: list[Tensor] = [m.weight for m in linears]  # type: ignore[misc]
        biases: list[Tensor | None] = [m.bias for m in linears]  # type: ignore[misc]
        found = [activation_of(a, relative=True) for a in activations] if activations else [Activation.identity()]
        self.backend = backend
        # One that is no longer known, since its threshold has changed, leaves too few of them.
        self.phis: tuple[Activation, ...] = tuple(p for p in found if p is not None)
        self.bias_layers = tuple(i for i, b in enumerate(biases) if b is not None)
        self.parameters = weights + [b for b in biases if b is not None]
        plain = all(is_plain(p) and has_memory(p) for p in self.parameters) and len(self.phis) == len(weights)
        plain = plain and all(w.dim() == 2 for w in weights) and takes_activations(backend, self.phis, weights)
        self.witness = _watch(activations, linears, self.parameters if plain else [], settings.frozen)
        self.infers = plain and backend.takes_parameters(weights, biases, training=False)
        self.trains = plain and backend.takes_parameters(weights, biases, training=True)
        if not self.infers:
            self.inputs = self.outputs = self.units = self.widest = -1
            return
        self.memories = tuple(storage_address(p) for p in self.parameters)
        # Kept, so that no other tensor comes to lie in this memory while the program reads it.
        self._memory: list[Any] = [p.detach() for p in self.parameters]
        self.inputs, self.outputs = int(weights[0].shape[1]), int(weights[-1].shape[0])
        self.units = sum(w.shape[1] for w in weights)
        self.widest = max(max(w.shape) for w in weights)
        if settings.frozen:
            weights = [w.to(settings.frozen_dtype) for w in on_large_pages(weights)]
            biases = [None if b is None else b.detach().clone() for b in biases]
            self._memory += [weights, biases]
        self.program: Program = backend.compile(weights, biases, self.phis)
        self.turns = self.program.row_gradients


def _watch(
    activations: Sequence[nn.Module], linears: Sequence[nn.Module], parameters: Sequence[Tensor], frozen: bool
) -> Witness:
    witness = Witness()
    for m in linears:
        for part in ("weight", "bias"):
            witness.entry(m._parameters, part)
            witness.entry(m.__dict__, part)  # where weight_norm and pruning put what they compute
    for a in activations:
        for key in a.__dict__:
            if not key.startswith("_") and key != "training":
                witness.entry(a.__dict__, key)  # a threshold, a clip, whatever torch calls them
    witness.memory(parameters, values=frozen)
    return witness
