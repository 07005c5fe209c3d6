"""A stretch as torch operators, for compiled graphs: `torch.compile` and FakeTensor see two opaque functions.

    hush::chain           (h, parameters)        ↦ (out, saved)
    hush::chain_backward  (∂L/∂out, saved, …)    ↦ (∂L/∂h, ∂L/∂parameters)

`parameters` is W₁, …, W_L and then the biases of the layers that `bias_layers` names. `saved` is the compact
activations: its length depends on how many units were active. Both operators call what eager code calls
(`hush.sparse.gradients`); eager code does not come through here, because torch spends 15 µs a layer on an operator's
list of parameters.
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
    save: bool,
) -> tuple[Tensor, Tensor]:
    program = _call(h, parameters, bias_layers, kinds, thresholds, clips).program
    if not save:
        return program.infer(h)[0], h.new_empty(0, dtype=torch.uint8)
    result = program.forward(h)
    return result.out, result.saved


@_chain.register_fake
def _(
    h: Tensor,
    parameters: list[Tensor],
    bias_layers: list[int],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    save: bool,
) -> tuple[Tensor, Tensor]:
    out = h.new_empty((h.shape[0], parameters[len(kinds) - 1].shape[0]))
    length = torch.library.get_ctx().new_dynamic_size() if save else 0
    return out, h.new_empty((length,), dtype=torch.uint8)


@torch.library.custom_op("hush::chain_backward", mutates_args=())
def _chain_backward(
    grad: Tensor,
    saved: Tensor,
    parameters: list[Tensor],
    bias_layers: list[int],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    needed: list[bool],
) -> list[Tensor]:
    call = _call(grad, parameters, bias_layers, kinds, thresholds, clips)
    program = call.program.for_backward()
    found = gradients_of(call, program, grad, saved, parameters, needed)
    return [grad.new_empty(0) if g is None else g.contiguous() for g in found]


@_chain_backward.register_fake
def _(
    grad: Tensor,
    saved: Tensor,
    parameters: list[Tensor],
    bias_layers: list[int],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    needed: list[bool],
) -> list[Tensor]:
    shapes = [(grad.shape[0], parameters[0].shape[1]), *(tuple(p.shape) for p in parameters)]
    return [grad.new_empty(shape if need else (0,)) for shape, need in zip(shapes, needed, strict=True)]


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    h, parameters, ctx.bias_layers, ctx.kinds, ctx.thresholds, ctx.clips, ctx.saving = inputs
    ctx.save_for_backward(output[1], *parameters)
    ctx.needed = [h.requires_grad, *(p.requires_grad for p in parameters)]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Any) -> Any:
    nothing = [None] * 5
    if grad is None:
        return None, [None] * (len(ctx.needed) - 1), *nothing
    if not ctx.saving:
        raise RuntimeError("hush::chain ran with save=False, so it kept nothing for a backward; pass save=True.")
    saved, *parameters = ctx.saved_tensors
    found = torch.ops.hush.chain_backward(
        grad, saved, parameters, ctx.bias_layers, ctx.kinds, ctx.thresholds, ctx.clips, ctx.needed
    )
    grad_h, *gradients = [g if need else None for g, need in zip(found, ctx.needed, strict=True)]
    return grad_h, gradients, *nothing


_chain.register_autograd(_backward, setup_context=_setup)


def chain_operator(
    h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None], phis: Sequence[Activation]
) -> Tensor:
    """The chain on float32 tensors as one operator of a graph that is being compiled."""
    parameters = [*weights, *(b for b in biases if b is not None)]
    save = torch.is_grad_enabled() and (h.requires_grad or any(p.requires_grad for p in parameters))
    out: Tensor = torch.ops.hush.chain(
        h.reshape(-1, h.shape[-1]),
        parameters,
        [layer for layer, b in enumerate(biases) if b is not None],
        [int(a.kind) for a in phis],
        [a.threshold for a in phis],
        [a.clip for a in phis],
        save,
    )[0]
    return out.reshape(*h.shape[:-1], out.shape[-1])


def traced_chain(h: Tensor, stretch: Stretch) -> Tensor:
    """A stretch inside a compiled graph. A fused optimizer has no place there: gradients go to .grad."""
    weights, biases = [m.weight for m in stretch.linears], [m.bias for m in stretch.linears]
    phis = [activation_of(a) for a in stretch.activations]
    tensors = [h, *weights, *biases]
    if h.dim() == 0 or any(t is not None and (t.dtype != torch.float32 or t.device.type != "cpu") for t in tensors):
        return dense_chain(h, weights, biases, phis)  # type: ignore[arg-type]
    return chain_operator(h, weights, biases, phis)  # type: ignore[arg-type]
