"""A residual stretch: consecutive blocks x ← x + β(W φ(n(x)) + b), or x ← x + β(W φ(W₁ n(x) + b₁) + b), of a model that
run as one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from .activation import activation_of
from .backend import Backend, runs_residual_chains
from .block_reader import Reading
from .conditions import has_memory, is_plain
from .gradients import Call
from .layout import on_large_pages, storage_address
from .residual_block import Norm, ResidualBlock, before_biases, parameters_of, with_parameters
from .residual_gradients import ResidualCall
from .settings import Settings
from .stretch import Prepared, Stretch
from .witness import Witness

__all__ = ["ResidualStretch"]

_BLOCKS_A_THREAD = 2

# What the kernels stand for besides Linears and activations. Whoever replaces one of these wants to be called.
_STANDS_FOR = (nn.RMSNorm.forward, nn.LayerNorm.forward, F.rms_norm, F.layer_norm)


class ResidualStretch(Stretch):
    """x ↦ the stream behind some blocks."""

    def __init__(self, readings: Sequence[Reading], settings: Settings) -> None:
        super().__init__([r.phi for r in readings], [linear for r in readings for linear in r.linears], settings)
        self.readings = list(readings)
        self._forwards = {forward for reading in readings for forward in reading.codes}

    def run(self, h: Tensor, backend: Backend) -> Tensor | None:
        """The stream, or None where torch is to run the modules."""
        patched = (nn.RMSNorm.forward, nn.LayerNorm.forward, F.rms_norm, F.layer_norm) != _STANDS_FOR
        if patched or not runs_residual_chains(backend) or not self._is_current():
            return None
        return super().run(h, backend)

    def _pays(self, h: Tensor, batch: int, prepared: Prepared, training: bool) -> bool:
        # In training blocks belong to threads. Where there are few, threads wait for each other, and the dense product
        # of a block of two matrices is better shared out by torch.
        threads = torch.get_num_threads()
        waits = training and threads > 1 and len(self.readings) < _BLOCKS_A_THREAD * threads
        if waits and any(reading.inner is not None for reading in self.readings):
            return False
        return super()._pays(h, batch, prepared, training)

    def _is_current(self) -> bool:
        """Whether the blocks' classes still have the forwards that were read."""
        return all(getattr(kind.forward, "__code__", None) is code for kind, code in self._forwards)

    def _look(self, backend: Backend) -> Prepared:
        return _PreparedBlocks(self.readings, self.settings, backend)

    def _call(self, h: Tensor, prepared: Prepared, batch: int) -> Call:
        assert isinstance(prepared, _PreparedBlocks)
        units = batch * prepared.units
        return ResidualCall(
            prepared.program,
            prepared.phis,
            (),
            note=lambda active: self._note(active, units),
            memories=prepared.memories,
            blocks=prepared.blocks,
            parts=prepared.places,
            before_biases=prepared.before_biases,
        )

    def _first_activations(self, h: Tensor, prepared: Prepared) -> Tensor:
        assert isinstance(prepared, _PreparedBlocks)
        return prepared.blocks[0].activations(h)


class _PreparedBlocks(Prepared):
    """A program over the blocks' parameters as they are now, and the witness that they still are."""

    def __init__(self, readings: Sequence[Reading], settings: Settings, backend: Backend) -> None:
        assert runs_residual_chains(backend)
        self.backend = backend
        found = [_block_of(reading) for reading in readings]
        self.blocks = tuple(block for block in found if block is not None)
        whole = len(self.blocks) == len(found)
        self.parameters, places = parameters_of(self.blocks if whole else ())
        self.places, self.before_biases = tuple(places), before_biases(places)
        plain = whole and all(is_plain(p) and has_memory(p) for p in self.parameters)
        self.witness = _watch(readings, self.parameters if plain else [], settings.frozen)
        self.infers = plain and backend.takes_blocks(self.blocks, training=False)
        self.trains = plain and backend.takes_blocks(self.blocks, training=True)
        if not self.infers:
            self.inputs = self.outputs = self.units = self.widest = -1
            return
        self.phis = tuple(block.phi for block in self.blocks)
        self.memories = tuple(storage_address(p) for p in self.parameters)
        # Kept, so that no other tensor comes to lie in this memory while the program reads it.
        self._memory: list[Any] = [p.detach() for p in self.parameters]
        self.inputs = self.outputs = int(self.blocks[0].weight.shape[0])
        self.widest = max(max(block.weight.shape) for block in self.blocks)
        self.units = sum(int(block.weight.shape[1]) for block in self.blocks)
        running: Sequence[ResidualBlock] = self.blocks
        if settings.frozen:
            count = len(self.blocks)  # the weights come first
            copies = [w.to(settings.frozen_dtype) for w in on_large_pages([b.weight.detach() for b in self.blocks])]
            others = [
                p.detach().clone(memory_format=torch.contiguous_format)
                for (_, part), p in zip(places, self.parameters, strict=True)
                if part != "weight"
            ]
            order = [place for place in places if place[1] != "weight"]
            running = with_parameters(self.blocks, [*((i, "weight") for i in range(count)), *order], [*copies, *others])
            self._memory.append(running)
        self.program = backend.compile_residual(running)
        self.turns = self.program.row_gradients


def _block_of(reading: Reading) -> ResidualBlock | None:
    """The block as plain values and tensors; None where its norm or φ is no longer what the kernels know."""
    phi, linear, norm = activation_of(reading.phi), reading.linear, reading.norm
    scale = reading.scale if isinstance(reading.scale, float) else getattr(reading.block, reading.scale, None)
    if (
        phi is None
        or not isinstance(scale, (int, float, Tensor))
        or any(m._parameters.get("weight") is None for m in reading.linears)
    ):
        return None
    if not isinstance(scale, Tensor):
        scale = float(scale)
    weight, bias = _weight_and_bias(linear)
    inner, inner_bias = (None, None) if reading.inner is None else _weight_and_bias(reading.inner)
    # From the stream to the units, where there is an inner matrix, and back again.
    if weight.dim() != 2 or weight.shape != (weight if inner is None else inner).shape[::-1]:
        return None
    if norm is None:
        return ResidualBlock(weight, bias, phi, scale=scale, inner_weight=inner, inner_bias=inner_bias)
    gain, shift = norm._parameters.get("weight"), norm._parameters.get("bias")
    if tuple(norm.normalized_shape) != (weight.shape[0],) or "weight" in norm.__dict__ or "bias" in norm.__dict__:  # type: ignore[arg-type]
        return None
    if shift is not None and gain is None:
        return None
    kind = Norm.RMS if type(norm) is nn.RMSNorm else Norm.LAYER
    eps = torch.finfo(torch.float32).eps if norm.eps is None else float(norm.eps)  # type: ignore[arg-type]
    return ResidualBlock(weight, bias, phi, kind, eps, gain, shift, scale, inner, inner_bias)


def _weight_and_bias(linear: nn.Module) -> tuple[Tensor, Tensor | None]:
    return linear.weight, linear.bias  # type: ignore[return-value]


def _watch(readings: Sequence[Reading], parameters: Sequence[Tensor], frozen: bool) -> Witness:
    witness = Witness()
    for reading in readings:
        for owner, key in reading.attributes:
            witness.entry(owner, key)
        for m in (*reading.linears, *(() if reading.norm is None else (reading.norm,))):
            for part in ("weight", "bias"):
                witness.entry(m._parameters, part)
                witness.entry(m.__dict__, part)
        if reading.norm is not None:
            witness.entry(reading.norm.__dict__, "eps")
            witness.entry(reading.norm.__dict__, "normalized_shape")
        for key in reading.phi.__dict__:
            if not key.startswith("_") and key != "training":
                witness.entry(reading.phi.__dict__, key)
    witness.memory(parameters, values=frozen)
    return witness
