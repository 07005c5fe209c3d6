"""φ → Conv2d with gradients, each product sparse or dense.

As in `hush.sparse.gradients`: ∂L/∂x is computed at the active units alone where φ is part of the call, or where x came
out of an activation that drops the gradient at its zeros and nobody looks at ∂L/∂x itself; else all of it, by torch.
With create_graph=True the backward runs on torch's operations, which can be differentiated again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .activation import Activation, Kind
from .convolution_backend import ConvolutionProgram
from .convolution_form import ConvolutionForm
from .gradients import Attached, Edge
from .sight import Sight

__all__ = ["ConvolutionCall", "Limits", "gradients_of_convolution", "run_convolution"]


@dataclass(frozen=True)
class Limits:
    """The densities up to which products run sparse: the output, ∂L/∂x and ∂L/∂W together, each of them alone."""

    output: float
    both: float
    input: float
    weight: float

    @property
    def largest(self) -> float:
        return max(self.output, self.both, self.input, self.weight)


@dataclass(frozen=True)
class ConvolutionCall:
    """One run; `density` is that of φ(x), and `sight` stands for an x whose zeros somebody else has made."""

    program: ConvolutionProgram
    form: ConvolutionForm
    phi: Activation
    density: float
    limits: Limits
    sight: Sight | None = None

    @property
    def reads_zeros(self) -> bool:
        return self.phi.kind is Kind.IDENTITY

    def output(self, saved: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.density <= self.limits.output:
            return self.program.forward(saved, weight, bias)
        return self.form.dense(self.phi(x), weight, bias)

    def drops_at_zeros(self) -> bool:
        """Whether ∂L/∂x is wanted at the active units only."""
        return not self.reads_zeros or (self.sight is not None and self.sight.is_free())


class _ConvolutionFunction(torch.autograd.Function):
    """(edge, x, call, weight, bias) ↦ out."""

    @staticmethod
    def forward(
        ctx: Any, edge: Tensor | None, x: Tensor, call: ConvolutionCall, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        saved = call.program.list_active(x)
        ctx.call = call
        # As torch has it, a change in place of the weight, or of an x that the convolution itself reads, is noticed.
        ctx.save_for_backward(edge, x if call.reads_zeros else None, saved, weight)
        return call.output(saved, x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        edge, x, saved, weight = ctx.saved_tensors
        call: ConvolutionCall = ctx.call
        want_x, _, _, want_weight, want_bias = ctx.needs_input_grad
        if torch.is_grad_enabled():
            of_x, of_weight = _with_torch(call, grads[0], edge if want_x else None, x, saved, weight, want_weight)
        else:
            of_x, of_weight = gradients_of_convolution(call, grads[0], x, saved, weight, want_x, want_weight)
        return of_x, None, None, of_weight, grads[0].sum((0, 2, 3)) if want_bias else None


def run_convolution(x: Tensor, call: ConvolutionCall, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution, connected to the graph. The program has just looked at x."""
    edge = Edge.apply(x) if x.requires_grad else None  # type: ignore[no-untyped-call]
    out: Tensor = _ConvolutionFunction.apply(edge, x.detach(), call, weight, bias)  # type: ignore[no-untyped-call]
    return out


def gradients_of_convolution(
    call: ConvolutionCall,
    grad: Tensor,
    x: Tensor | None,
    saved: Tensor,
    weight: Tensor,
    want_x: bool,
    want_weight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """∂L/∂x and ∂L/∂W, None where not wanted; each product by the kernels or by torch, by the density."""
    limits, form = call.limits, call.form
    if want_x and call.density <= (limits.both if want_weight else limits.input) and call.drops_at_zeros():
        return call.program.backward(saved, weight, grad, True, want_weight)
    sparse_weight = want_weight and call.density <= limits.weight
    of_x = of_weight = None
    if sparse_weight:
        _, of_weight = call.program.backward(saved, weight, grad, False, True)
    if want_x or (want_weight and not sparse_weight):
        first = call.program.activations(saved) if x is None else x
        if want_weight and not sparse_weight:
            of_weight = form.dense_weight_gradient(grad, first, weight)
        if want_x:
            of_x = form.dense_input_gradient(grad, first, weight.detach())
            # masked_fill and not a product: 0 · ∞ must stay 0.
            of_x = of_x if x is not None else of_x.masked_fill_(call.phi.slope(first) == 0, 0.0)
    return of_x, of_weight


def _with_torch(
    call: ConvolutionCall,
    grad: Tensor,
    edge: Tensor | None,
    x: Tensor | None,
    saved: Tensor,
    weight: Tensor,
    want_weight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """The same gradients as functions that can be differentiated again; an edge only where ∂L/∂x is wanted."""
    first = call.program.activations(saved) if x is None else x
    if edge is not None:
        slope = call.phi.slope(first) if x is None else torch.ones_like(first)
        first = Attached.apply(edge, first, slope)  # type: ignore[no-untyped-call]
    out = call.form.dense(first, weight, None)
    wanted = [t for t in (edge, weight if want_weight else None) if t is not None]
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True, allow_unused=True) if wanted else ())
    return next(found) if edge is not None else None, next(found) if want_weight else None
