"""A stretch as torch operators, for compiled graphs: `torch.compile` and FakeTensor see two opaque functions.

    hush::chain           (h, parameters)               ↦ out
    hush::chain_backward  (∂L/∂out, h, parameters, …)   ↦ (∂L/∂h, ∂L/∂parameters)

`parameters` is W₁, …, W_L and then the biases of the layers that `bias_layers` names. A compiled graph wants to know
the size of every tensor beforehand, which that of the compact activations is not: the backward runs the forward again.

Both call what eager code calls (`hush.sparse.gradients`); eager code does not come through here, because torch spends
15 µs a layer on an operator's list of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .activation import Activation, Kind, activation_of
from .backend import Program, backend_for
from .gradients import Call, dense_chain, gradients_of

if TYPE_CHECKING:
    from .stretch import Stretch

__all__ = ["chain_operator", "traced_chain"]


def _call(
    h: Tensor,
    parameters: Sequence[Tensor],
    bias_layers: Sequence[int],
    kinds: Sequence[int],
    thresholds: Sequence[float],
    clips: Sequence[float],
) -> Call:
    phis = tuple(Activation(Kind(k), t, c) for k, t, c in zip(kinds, thresholds, clips, strict=True))
    backend = backend_for(h)
    if backend is None:
        raise ValueError(f"hush::chain has no backend for {h.device}.")
    n = len(phis)
    biases: list[Tensor | None] = [None] * n
    for layer, b in zip(bias_layers, parameters[n:], strict=True):
        biases[layer] = b.contiguous()
    weights = [w if backend.takes_parameters([w], [None], training=False) else w.contiguous() for w in parameters[:n]]
    program: Program = backend.compile(weights, biases, phis)
    return Call(program, phis, tuple(bias_layers))


@torch.library.custom_op("hush::chain", mutates_args=())
def _chain(
    h: Tensor,
    parameters: list[Tensor],
    bias_layers: list[int],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
) -> Tensor:
    return _call(h, parameters, bias_layers, kinds, thresholds, clips).program.infer(h)[0]


@_chain.register_fake
def _(
    h: Tensor,
    parameters: list[Tensor],
    bias_layers: list[int],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
) -> Tensor:
    return h.new_empty((h.shape[0], parameters[len(kinds) - 1].shape[0]))


@torch.library.custom_op("hush::chain_backward", mutates_args=())
def _chain_backward(
    grad: Tensor,
    h: Tensor,
    parameters: list[Tensor],
    bias_layers: list[int],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    needed: list[bool],
) -> list[Tensor]:
    call = _call(h, parameters, bias_layers, kinds, thresholds, clips)
    forward = call.program.forward(h)
    found = gradients_of(call, forward.program, grad, forward.saved, parameters, needed)
    return [grad.new_empty(0) if g is None else g.contiguous() for g in found]


@_chain_backward.register_fake
def _(
    grad: Tensor,
    h: Tensor,
    parameters: list[Tensor],
    bias_layers: list[int],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    needed: list[bool],
) -> list[Tensor]:
    shapes = [tuple(h.shape), *(tuple(p.shape) for p in parameters)]
    return [grad.new_empty(shape if need else (0,)) for shape, need in zip(shapes, needed, strict=True)]


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    h, parameters, ctx.bias_layers, ctx.kinds, ctx.thresholds, ctx.clips = inputs
    ctx.save_for_backward(h, *parameters)
    ctx.needed = [h.requires_grad, *(p.requires_grad for p in parameters)]


def _backward(ctx: Any, grad: Tensor) -> Any:
    h, *parameters = ctx.saved_tensors
    found = torch.ops.hush.chain_backward(
        grad, h, parameters, ctx.bias_layers, ctx.kinds, ctx.thresholds, ctx.clips, ctx.needed
    )
    grad_h, *gradients = [g if need else None for g, need in zip(found, ctx.needed, strict=True)]
    return grad_h, gradients, None, None, None, None


_chain.register_autograd(_backward, setup_context=_setup)


def chain_operator(
    h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None], phis: Sequence[Activation]
) -> Tensor:
    """The chain on float32 tensors as one operator of a graph that is being compiled."""
    parameters = [*weights, *(b for b in biases if b is not None)]
    out: Tensor = torch.ops.hush.chain(
        h.reshape(-1, h.shape[-1]),
        parameters,
        [layer for layer, b in enumerate(biases) if b is not None],
        [int(a.kind) for a in phis],
        [a.threshold for a in phis],
        [a.clip for a in phis],
    )
    return out.reshape(*h.shape[:-1], out.shape[-1])


def traced_chain(h: Tensor, stretch: Stretch) -> Tensor:
    """A stretch inside a compiled graph. A fused optimizer has no place there: gradients go to .grad."""
    weights, biases = [m.weight for m in stretch.linears], [m.bias for m in stretch.linears]
    phis = [activation_of(a, relative=True) for a in stretch.activations]
    tensors = [h, *weights, *biases]
    relative = any(phi is not None and phi.relative for phi in phis)
    if (
        h.dim() == 0
        or relative
        or any(t is not None and (t.dtype != torch.float32 or t.device.type != "cpu") for t in tensors)
    ):
        return dense_chain(h, weights, biases, phis)  # type: ignore[arg-type]
    return chain_operator(h, weights, biases, phis)  # type: ignore[arg-type]
