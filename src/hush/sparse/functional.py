"""The engine as plain functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .activation import Activation
from .backend import takes_activations
from .conditions import backend_of, is_plain
from .gradients import Call, dense_chain, run_training
from .layout import storage_address
from .lone_linear import sparse_backward_linear
from .operators import chain_operator

__all__ = ["act_linear", "chain", "feedforward"]


def chain(
    h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None], activations: Sequence[Activation]
) -> Tensor:
    """h ↦ W_L φ_L(… W₁ φ₁(h) + b₁ …) + b_L, exact, with exact gradients, in one call.

    float32 on the CPU runs on the sparse kernels and keeps only the compact activations for the backward; weights may
    be bfloat16 when no gradient is wanted. Everything else (another device or dtype) runs on torch's own operations.
    Weights with strides (1, out) are read in place; others are copied at each call. Leading dimensions are kept.
    """
    if not len(weights) == len(biases) == len(activations) > 0:
        raise ValueError(
            f"A chain needs as many weights as biases and activations, at least one; there are {len(weights)}, "
            f"{len(biases)} and {len(activations)}."
        )
    _check(h, weights, biases)
    parameters = [*weights, *(b for b in biases if b is not None)]
    training = torch.is_grad_enabled() and (h.requires_grad or any(p.requires_grad for p in parameters))
    if torch.compiler.is_compiling():
        relative = any(phi.relative for phi in activations)
        if (
            not relative
            and h.dtype == torch.float32
            and h.device.type == "cpu"
            and all(p.dtype == torch.float32 for p in parameters)
        ):
            return chain_operator(h, weights, biases, activations)
        return dense_chain(h, weights, biases, activations)
    backend = backend_of(h)
    if (
        backend is None
        or not all(is_plain(p) for p in parameters)
        or not backend.takes_parameters(weights, biases, training)
        or not takes_activations(backend, activations, weights)
    ):
        return dense_chain(h, weights, biases, activations)
    program = backend.compile(weights, biases, activations)
    rows = h.reshape(-1, h.shape[-1])
    if training:
        bias_layers = tuple(layer for layer, b in enumerate(biases) if b is not None)
        memories = tuple(storage_address(p) for p in parameters)
        call = Call(program, tuple(activations), bias_layers, memories=memories)
        out = run_training(rows, call, parameters)
    else:
        out, _ = program.infer(rows)
    return out.reshape(*h.shape[:-1], out.shape[-1])


def act_linear(h: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """W φ(h) + b: dense in, dense out, exact gradients; only the compact φ(h) is kept for the backward."""
    return chain(h, [weight], [bias], [activation])


def feedforward(
    x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, activation: Activation
) -> Tensor:
    """W₂ φ(W₁ x + b₁) + b₂, exact, with exact gradients: all but the forward of W₁ leaves out the zeros of φ.

    In the backward ∂L/∂(W₁ x) is zero wherever φ has slope 0, so ∂L/∂x and ∂L/∂W₁ are sums over active units. As with
    `chain`, float32 on the CPU runs on the sparse kernels, and everything else on torch's own operations.
    """
    _check(x, [w1, w2], [b1, b2])
    if w1.dtype == torch.bfloat16 != x.dtype:
        raise ValueError("w1 is torch.bfloat16, but its forward is dense; it must be of the input's dtype.")
    return act_linear(sparse_backward_linear(x, w1, b1), w2, b2, activation)


def _check(h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
    if h.dim() < 1:
        raise ValueError("The input has no dimensions; its last one must be the layer's inputs.")
    width = h.shape[-1]
    for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
        if w.dim() != 2 or w.shape[1] != width:
            raise ValueError(
                f"Layer {layer} has a weight of shape {tuple(w.shape)}; with {width} inputs it must be (out, {width})."
            )
        width = w.shape[0]
        if b is not None and b.shape != (width,):
            raise ValueError(f"Layer {layer} has a bias of shape {tuple(b.shape)}; it must be ({width},).")
        for name, p in (("weight", w), ("bias", b)):
            if p is None:
                continue
            half = p.dtype == torch.bfloat16 and h.dtype == torch.float32
            if p.dtype != h.dtype and not (half and name == "weight"):
                raise ValueError(
                    f"The {name} of layer {layer} is {p.dtype}, but the input is {h.dtype}; they must agree."
                )
            if p.device != h.device:
                raise ValueError(f"The {name} of layer {layer} is on {p.device}, but the input is on {h.device}.")
            if half and torch.is_grad_enabled() and p.requires_grad:
                raise ValueError(
                    f"Layer {layer} has bfloat16 weights that require gradients; train with float32 weights."
                )
