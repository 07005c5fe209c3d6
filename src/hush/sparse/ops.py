"""The engine as torch operators: `torch.compile`, FakeTensor and autograd see two opaque functions.

    hush::chain           (h, parameters)        ↦ (out, saved)
    hush::chain_backward  (∂L/∂out, saved, …)    ↦ (∂L/∂h, ∂L/∂parameters)

`parameters` is the list W₁, b₁, W₂, b₂, …; has_bias tells which layers have a b. `saved` is the compact activations:
its length depends on how many units were active.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from . import _engine
from .activation import Activation, Kind

__all__ = ["act_linear", "chain"]


def _split(parameters: Sequence[Tensor], has_bias: Sequence[bool]) -> tuple[list[Tensor], list[Tensor | None]]:
    rest = iter(parameters)
    weights, biases = [], []
    for bias in has_bias:
        weights.append(next(rest))
        biases.append(next(rest) if bias else None)
    return weights, biases


def _phis(kinds: Sequence[int], thresholds: Sequence[float], clips: Sequence[float]) -> list[Activation]:
    return [Activation(Kind(k), t, c) for k, t, c in zip(kinds, thresholds, clips, strict=True)]


@torch.library.custom_op("hush::chain", mutates_args=())
def _chain(
    h: Tensor,
    parameters: list[Tensor],
    has_bias: list[bool],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    save: bool,
) -> tuple[Tensor, Tensor]:
    weights, biases = _split(parameters, has_bias)
    weights = [_engine.input_major(w.detach()) for w in weights]
    biases = [None if b is None else b.detach().contiguous() for b in biases]
    chain = _engine.chain_of(weights, biases, _phis(kinds, thresholds, clips))
    out, saved, _ = _engine.run(chain, h, weights[-1].shape[0], save)
    return out, torch.empty(0, dtype=torch.uint8) if saved is None else saved


@_chain.register_fake
def _(
    h: Tensor,
    parameters: list[Tensor],
    has_bias: list[bool],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    save: bool,
) -> tuple[Tensor, Tensor]:
    weights, _ = _split(parameters, has_bias)
    out = h.new_empty((h.shape[0], weights[-1].shape[0]))
    length = torch.library.get_ctx().new_dynamic_size() if save else 0
    return out, h.new_empty((length,), dtype=torch.uint8)


@torch.library.custom_op("hush::chain_backward", mutates_args=())
def _chain_backward(
    grad: Tensor,
    saved: Tensor,
    parameters: list[Tensor],
    has_bias: list[bool],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    want_h: bool,
    wants: list[int],
) -> list[Tensor]:
    weights, biases = _split(parameters, has_bias)
    weights = [_engine.input_major(w.detach()) for w in weights]
    biases = [None if b is None else b.detach().contiguous() for b in biases]
    gradients, addresses = [], []
    for w, b, want in zip(weights, biases, wants, strict=True):
        gw = torch.empty((w.shape[1], w.shape[0]) if want & 1 else (0, 0)).t()
        gb = torch.empty(w.shape[0] if want & 2 and b is not None else 0)
        gradients.append(gw)
        if b is not None:
            gradients.append(gb)
        addresses += [gw.data_ptr() if want & 1 else 0, gb.data_ptr() if want & 2 else 0, 0, 0, 0, 0]
    # A parameter of zero size has no address, and nothing to write.
    safe = [want & ((w.numel() > 0) | (w.shape[0] > 0) << 1) for w, want in zip(weights, wants, strict=True)]
    chain = _engine.chain_of(weights, biases, _phis(kinds, thresholds, clips))
    inputs = weights[0].shape[1] if want_h else None
    grad_h = _engine.run_backward(
        chain, grad, saved, inputs, safe, [_engine.GRADIENT], [0, 0] * len(weights), addresses
    )
    return [torch.empty(0) if grad_h is None else grad_h, *gradients]


@_chain_backward.register_fake
def _(
    grad: Tensor,
    saved: Tensor,
    parameters: list[Tensor],
    has_bias: list[bool],
    kinds: list[int],
    thresholds: list[float],
    clips: list[float],
    want_h: bool,
    wants: list[int],
) -> list[Tensor]:
    weights, biases = _split(parameters, has_bias)
    result = [grad.new_empty((grad.shape[0], weights[0].shape[1]) if want_h else (0,))]
    for w, b, want in zip(weights, biases, wants, strict=True):
        result.append(grad.new_empty((w.shape[1], w.shape[0]) if want & 1 else (0, 0)).t())
        if b is not None:
            result.append(grad.new_empty((w.shape[0],) if want & 2 else (0,)))
    return result


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    h, parameters, ctx.has_bias, ctx.kinds, ctx.thresholds, ctx.clips, ctx.saving = inputs
    ctx.save_for_backward(output[1], *parameters)
    ctx.want_h = h.requires_grad
    ctx.wanted = [p.requires_grad for p in parameters]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Any) -> Any:
    none = [None] * 6
    if grad is None:
        return None, [None] * len(ctx.wanted), *none[1:]
    if not ctx.saving:
        raise RuntimeError("hush::chain ran with save=False, so it kept nothing for a backward; pass save=True.")
    saved, *parameters = ctx.saved_tensors
    wants, rest = [], iter(ctx.wanted)
    for bias in ctx.has_bias:
        wants.append(int(next(rest)) | (int(next(rest)) << 1 if bias else 0))
    grad_h, *gradients = torch.ops.hush.chain_backward(
        grad, saved, parameters, ctx.has_bias, ctx.kinds, ctx.thresholds, ctx.clips, ctx.want_h, wants
    )
    gradients = [g if wanted else None for g, wanted in zip(gradients, ctx.wanted, strict=True)]
    return grad_h if ctx.want_h else None, gradients, *none[1:]


_chain.register_autograd(_backward, setup_context=_setup)


def _check(h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
    if h.dim() < 1:
        raise ValueError("The input has no dimensions; its last one must be the layer's inputs.")
    width = h.shape[-1]
    for l, (w, b) in enumerate(zip(weights, biases, strict=True)):  # noqa: E741
        if w.dim() != 2 or w.shape[1] != width:
            raise ValueError(
                f"Layer {l} has a weight of shape {tuple(w.shape)}; with {width} inputs it must be (out, {width})."
            )
        width = w.shape[0]
        if b is not None and b.shape != (width,):
            raise ValueError(f"Layer {l} has a bias of shape {tuple(b.shape)}; it must be ({width},).")
        for name, p in (("weight", w), ("bias", b)):
            if p is None:
                continue
            if p.dtype != h.dtype and not (p.dtype == torch.bfloat16 and h.dtype == torch.float32 and name == "weight"):
                raise ValueError(f"The {name} of layer {l} is {p.dtype}, but the input is {h.dtype}; they must agree.")
            if p.device != h.device:
                raise ValueError(f"The {name} of layer {l} is on {p.device}, but the input is on {h.device}.")
            if p.dtype == torch.bfloat16 and h.dtype == torch.float32 and torch.is_grad_enabled() and p.requires_grad:
                raise ValueError(f"Layer {l} has bfloat16 weights that require gradients; train with float32 weights.")


def dense_chain(
    h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None], phis: Sequence[Activation]
) -> Tensor:
    """The same chain with torch's own operations."""
    for w, b, phi in zip(weights, biases, phis, strict=True):
        h = F.linear(phi(h), w.to(h.dtype), b)
    return h


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
    if not _engine.takes(h, weights):
        return dense_chain(h, weights, biases, activations)
    parameters = [p for pair in zip(weights, biases, strict=True) for p in pair if p is not None]
    save = torch.is_grad_enabled() and (h.requires_grad or any(p.requires_grad for p in parameters))
    if save and any(w.dtype == torch.bfloat16 for w in weights):
        return dense_chain(h, weights, biases, activations)
    out, _ = torch.ops.hush.chain(
        h.reshape(-1, h.shape[-1]),
        parameters,
        [b is not None for b in biases],
        [int(a.kind) for a in activations],
        [a.threshold for a in activations],
        [a.clip for a in activations],
        save,
    )
    return out.reshape(*h.shape[:-1], out.shape[-1])


def act_linear(h: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """W φ(h) + b: dense in, dense out, exact gradients; only the compact φ(h) is kept for the backward."""
    return chain(h, [weight], [bias], [activation])
