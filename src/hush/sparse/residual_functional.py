"""The residual chain as a plain function of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .backend import runs_residual_chains
from .conditions import backend_of, is_plain
from .gradients import run_training
from .layout import storage_address
from .residual_block import Norm, ResidualBlock, before_biases, dense_residual, parameters_of
from .residual_gradients import ResidualCall
from .step_plan import Part

__all__ = ["residual_chain"]


def residual_chain(x: Tensor, blocks: Sequence[ResidualBlock]) -> Tensor:
    """x ← x + β(W φ(n(x)) + b), or x ← x + β(W φ(W₁ n(x) + b₁) + b), through all blocks in one call, exact, with exact
    gradients.

    float32 on the CPU runs on the sparse kernels; weights may be bfloat16 when no gradient is wanted. Everything else
    (another device or dtype, a graph that is being compiled) runs on torch's own operations. Leading dimensions stay.
    """
    _check(x, blocks)
    parameters, places = parameters_of(blocks)
    training = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in parameters))
    backend = None if torch.compiler.is_compiling() else backend_of(x)
    if (
        not runs_residual_chains(backend)
        or not all(is_plain(p) for p in parameters)
        or not backend.takes_blocks(blocks, training)
    ):
        return dense_residual(x, blocks)
    program = backend.compile_residual(blocks)
    rows = x.reshape(-1, x.shape[-1])
    if training:
        memories = tuple(storage_address(p) for p in parameters)
        phis = tuple(block.phi for block in blocks)
        call = ResidualCall(
            program,
            phis,
            (),
            memories=memories,
            blocks=tuple(blocks),
            parts=tuple(places),
            before_biases=before_biases(places),
        )
        out = run_training(rows, call, parameters)
    else:
        out, _ = program.infer(rows)
    return out.reshape(x.shape)


def _expected_shape(part: Part, block: ResidualBlock, width: int) -> tuple[int, ...]:
    units = width if block.inner_weight is None else block.inner_weight.shape[0]
    shapes = {"weight": (width, units), "inner_weight": (units, width), "inner_bias": (units,)}
    return shapes.get(part, (width,))


def _check(x: Tensor, blocks: Sequence[ResidualBlock]) -> None:
    if x.dim() < 1 or not blocks:
        raise ValueError(
            f"A residual chain needs an input with a last dimension and at least one block, got {len(blocks)}."
        )
    width = x.shape[-1]
    for number, block in enumerate(blocks):
        if block.phi.relative:
            raise ValueError(
                f"The activation of block {number} is relative to a sample's size, which residual chains do not take."
            )
        if block.inner_bias is not None and block.inner_weight is None:
            raise ValueError(f"Block {number} has an inner bias but no inner weight.")
        for part, tensor in block.tensors():
            expected = _expected_shape(part, block, width)
            fits = tensor.numel() == 1 if part == "scale" else tensor.shape == expected
            if not fits:
                wanted = "one number" if part == "scale" else expected
                raise ValueError(f"The {part} of block {number} has shape {tuple(tensor.shape)}; it must be {wanted}.")
            half = part == "weight" and tensor.dtype == torch.bfloat16 and x.dtype == torch.float32
            if tensor.dtype != x.dtype and not half:
                raise ValueError(f"The {part} of block {number} is {tensor.dtype}, but the input is {x.dtype}.")
            if half and torch.is_grad_enabled() and tensor.requires_grad:
                raise ValueError(
                    f"Block {number} has bfloat16 weights that require gradients; train with float32 weights."
                )
            if tensor.device != x.device:
                raise ValueError(f"The {part} of block {number} is on {tensor.device}, but the input is on {x.device}.")
        if (block.gain is not None and block.norm is Norm.NONE) or (
            block.shift is not None and (block.gain is None or block.norm is not Norm.LAYER)
        ):
            raise ValueError(
                f"Block {number} has a gain or a shift that its norm, {block.norm.name}, does not take: a gain needs a "
                "norm, and a shift LayerNorm with a gain."
            )
