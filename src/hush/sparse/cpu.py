"""The processor's backend: native kernels on float32 tensors. Whatever they write is allocated here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from . import _native
from .activation import Activation
from .backend import Forward, register_backend
from .convolution_form import ConvolutionForm
from .cpu_convolution import CpuConvolution
from .kernel_counter import count_call, engine_calls
from .layout import is_input_major, is_row_major
from .residual_block import ResidualBlock
from .step_plan import StepPlan

__all__ = ["CpuBackend", "CpuProgram", "engine_calls", "isa"]

_CPU = torch.device("cpu")
_L2_BYTES = 400 * 1024  # of a layer, as in native/forward_chain.cpp
_LARGE = 1 << 18  # floats, 1 MB


def _empty(*shape: int) -> Tensor:
    """Memory for a kernel to write. The default dtype and device are the user's business, not the kernels'."""
    return torch.empty(shape, dtype=torch.float32, device=_CPU)


def _empty_again(*shape: int) -> Tensor:
    """The same for a large gradient, in memory that earlier ones have left: fresh pages take longer than a product."""
    floats = math.prod(shape)
    if floats < _LARGE:
        return _empty(*shape)
    return torch.from_numpy(_native.take_bytes(4 * floats)).view(torch.float32).view(shape)


def _rows(x: Tensor) -> Tensor:
    """A float32 matrix whose rows are contiguous."""
    x = x.detach()
    if x.dtype != torch.float32 or (x.shape[1] > 1 and x.stride(1) != 1) or x.is_neg():
        x = x.to(torch.float32).resolve_neg().contiguous()
    return x


class CpuProgram:
    """A native chain, plain or residual, over the memory of some parameters."""

    def __init__(self, chain: _native.Chain | _native.Residual, widths: Sequence[int], row_gradients: bool) -> None:
        self.chain, self.row_gradients = chain, row_gradients
        self.takes_updates = isinstance(chain, _native.Chain) or not row_gradients
        self.widths = list(widths)  # of what each layer reads, and of the output
        self.inputs, self.outputs = self.widths[0], self.widths[-1]

    def _ready(self) -> _native.Chain | _native.Residual:
        """The chain on input-major weights. Those that lie row by row are copied anew at each call: whatever changed
        them since the last one, it is seen."""
        return self.chain.turned(torch.get_num_threads()) if self.chain.row_major else self.chain

    def infer(self, h: Tensor) -> tuple[Tensor, int]:
        h = _rows(h)
        out = _empty(h.shape[0], self.outputs)
        count_call()
        active = self._ready().infer_at(
            h.data_ptr(), h.stride(0), h.shape[0], out.data_ptr(), self.outputs, torch.get_num_threads()
        )
        return out, active

    def forward(self, h: Tensor) -> Forward:
        h = _rows(h)
        out = _empty(h.shape[0], self.outputs)
        chain = self._ready()
        count_call()
        saved, active = chain.forward(h, out, torch.get_num_threads())
        program = self if chain is self.chain else CpuProgram(chain, self.widths, self.row_gradients)
        return Forward(out, torch.from_numpy(saved), active, program)

    def first_activations(self, saved: Tensor, batch: int) -> Tensor:
        out = _empty(batch, self.inputs)
        self.chain.first_activations(saved, out)
        return out

    def first_inputs(self, saved: Tensor, batch: int) -> Tensor:
        out = _empty(batch, self.inputs)
        assert isinstance(self.chain, _native.Chain)
        self.chain.first_inputs(saved, out)
        return out

    def mean_inputs(self, saved: Tensor, batch: int) -> list[Tensor]:
        out = _empty(sum(self.widths[:-1]))
        assert isinstance(self.chain, _native.Chain)  # blocks with a hook on their Linear are not fused
        self.chain.mean_inputs(saved, batch, out)
        return list(out.split(self.widths[:-1]))

    def backward(self, grad: Tensor, saved: Tensor, want_h: bool, plan: StepPlan) -> Tensor | None:
        grad = _rows(grad)
        grad_h = _empty_again(grad.shape[0], self.inputs) if want_h else None
        self.chain.backward(
            saved, grad, grad_h, torch.get_num_threads(), plan.wants, plan.rules, plan.groups, plan.addresses,
            self.row_gradients, **({"means": plan.means} if plan.means else {}),
        )  # fmt: skip
        return grad_h


class CpuBackend:
    """float32 on the processor; weights may be bfloat16 where no gradient is wanted."""

    name = "cpu"

    def takes(self, h: Tensor) -> bool:
        return h.dtype == torch.float32 and h.layout == torch.strided

    def takes_parameters(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None], training: bool) -> bool:
        return (
            all(self._takes_weight(w, training) for w in weights)
            and all(b is None or (_plain(b, torch.float32) and b.is_contiguous()) for b in biases)
            and all(a.shape[0] == b.shape[1] for a, b in itertools.pairwise(weights))
        )

    @staticmethod
    def _takes_weight(w: Tensor, training: bool) -> bool:
        if _plain(w, torch.float32):
            return is_row_major(w) or is_input_major(w)
        return not training and _plain(w, torch.bfloat16) and is_input_major(w)

    def takes_relative(self, weights: Sequence[Tensor]) -> bool:
        # Every sample stays with one thread, which reads the weights from L2.
        return all(w.numel() * w.element_size() <= _L2_BYTES for w in weights)

    def compile(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor | None], phis: Sequence[Activation]
    ) -> CpuProgram:
        chain = _native.Chain()
        for w, b, phi in zip(weights, biases, phis, strict=True):
            chain.add(w.detach(), _detached(b), int(phi.kind), phi.threshold, phi.clip, phi.relative, phi.through_scale)
        return CpuProgram(chain, [*(w.shape[1] for w in weights), weights[-1].shape[0]], chain.row_major)

    def takes_blocks(self, blocks: Sequence[ResidualBlock], training: bool) -> bool:
        width = blocks[0].weight.shape[0]
        return width > 0 and all(self._takes_block(block, width, training) for block in blocks)

    def _takes_block(self, block: ResidualBlock, width: int, training: bool) -> bool:
        tensors: dict[str, Tensor] = dict(block.tensors())
        scale, inner = tensors.pop("scale", None), tensors.pop("inner_weight", None)
        units = block.weight.shape[1]
        vectors = [(t, units if part == "inner_bias" else width) for part, t in tensors.items() if part != "weight"]
        return (
            block.weight.shape == (width, width if inner is None else units)
            and units > 0
            and self._takes_weight(block.weight, training)
            # W₁ is read row by row in both directions, as torch has it.
            and (inner is None or (_plain(inner, torch.float32) and is_row_major(inner)))
            and (inner is None or inner.shape == (units, width))
            and all(_plain(v, torch.float32) and v.is_contiguous() and v.shape == (n,) for v, n in vectors)
            and (scale is None or (_plain(scale, torch.float32) and scale.numel() == 1 and scale.dim() <= 1))
        )

    def compile_residual(self, blocks: Sequence[ResidualBlock]) -> CpuProgram:
        chain = _native.Residual()
        for b in blocks:
            learned = b.scale.detach().view(1) if isinstance(b.scale, Tensor) else None
            chain.add(
                b.weight.detach(), _detached(b.bias), int(b.phi.kind), b.phi.threshold, b.phi.clip, int(b.norm), b.eps,
                _detached(b.gain), _detached(b.shift), 1.0 if isinstance(b.scale, Tensor) else b.scale, learned,
                _detached(b.inner_weight), _detached(b.inner_bias),
            )  # fmt: skip
        width = blocks[0].weight.shape[0]
        return CpuProgram(chain, [width] * (len(blocks) + 1), chain.row_major)

    def takes_images(self, x: Tensor) -> bool:
        # Only what lies channels-last without doubt, because then torch's own output does.
        return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous() and not x.is_neg()

    def takes_convolution(self, weight: Tensor, bias: Tensor | None) -> bool:
        return _plain(weight, torch.float32) and (
            bias is None or (_plain(bias, torch.float32) and bias.shape == weight.shape[:1] and bias.is_contiguous())
        )

    def compile_convolution(self, form: ConvolutionForm, x: Tensor, weight: Tensor, phi: Activation) -> CpuConvolution:
        return CpuConvolution(form, x, weight, phi)


def _detached(p: Tensor | None) -> Tensor | None:
    return None if p is None else p.detach()


def _plain(p: Tensor, dtype: torch.dtype) -> bool:
    return p.dtype == dtype and p.device.type == "cpu" and p.layout == torch.strided and not p.is_neg()


def isa() -> str:
    """The instruction set in use: avx512, avx2 or portable. HUSH_ISA forces one."""
    return _native.isa()


register_backend("cpu", CpuBackend())
