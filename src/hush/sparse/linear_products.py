"""The two products in the backward of y = W x + b, by the zeros of δ = ∂L/∂y, and the sum that is ∂L/∂b:

    ∂L/∂x = δ W        the rows of W of the units where δ is not zero
    ∂L/∂W = δᵀ x       for each unit, the samples in which its δ is not zero
    ∂L/∂b = Σ δ

To the kernels of a chain the first is the forward of a layer that reads δ and has the weight Wᵀ, which lies input-major
as torch keeps W, and the second is the gradient of that weight where the output's gradient is x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from .activation import Activation
from .backend import Backend, Forward
from .step_plan import Rule, States, StepPlan, place_of

__all__ = ["Products", "Update", "products_at", "sparse_products"]


class Update(NamedTuple):
    """A weight that takes a step by its gradient; the optimizer's states lie as it does."""

    weight: Tensor
    rule: Rule
    states: States


class Products(NamedTuple):
    grad_x: Tensor | None
    grad_weight: Tensor | None
    grad_bias: Tensor | None
    active: int  # entries of δ that are not zero


def sparse_products(
    backend: Backend,
    grad: Tensor,
    x: Tensor | None,
    weight: Tensor | None,
    ask_update: Callable[[], Update | None] | None = None,
    *,
    want_bias: bool = False,
) -> Products:
    """On matrices: without x no ∂L/∂W, without the weight no ∂L/∂x.

    `ask_update` is called where the backend can apply ∂L/∂W; with an update it does, and gives none.
    """
    phi = [Activation.identity()]
    if x is None:
        assert weight is not None
        out, active = backend.compile([weight.detach().t()], [None], phi).infer(grad)
        return Products(out, None, grad.sum(0) if want_bias else None, active)
    # A layer without outputs multiplies nothing and sorts δ all the same, which is what ∂L/∂W needs.
    read = grad.new_empty((0, grad.shape[1])) if weight is None else weight.detach().t()
    forward = backend.compile([read], [None], phi).forward(grad)
    program, shape = forward.program, (grad.shape[1], x.shape[1])
    turned = weight is not None and program.row_gradients  # the weight lies input-major, and so shall its gradient
    plan, gradient = StepPlan(1), None
    update = ask_update() if ask_update is not None and program.takes_updates else None
    if update is None:
        gradient = x.new_empty(shape[::-1] if turned else shape)
        plan.write(0, "weight", gradient)
    else:
        plan.update([place_of(0, "weight")], [update.rule], [update.states])
    if weight is None:
        # Nobody reads the weights where the gradient is written: any memory of their shape will do.
        changed = gradient if update is None else update.weight.detach()
        assert changed is not None
        program = backend.compile([changed.t()], [None], phi)
    program.backward(x, forward.saved, False, plan)
    if gradient is not None and turned:
        gradient = gradient.t()
    grad_bias = _sum(forward, grad) if want_bias else None
    return Products(None if weight is None else forward.out, gradient, grad_bias, forward.active)


def _sum(forward: Forward, grad: Tensor) -> Tensor:
    """Σ δ, of what is not zero alone where the backend can: a sum over all of δ would read it once more."""
    if not hasattr(forward.program, "mean_inputs"):
        return grad.sum(0)
    (mean,) = forward.program.mean_inputs(forward.saved, grad.shape[0])
    return mean.mul_(grad.shape[0])


def products_at(active: Tensor, x: Tensor, weight: Tensor, backend: Backend) -> tuple[Tensor, int]:
    """x Wᵀ at the entries of `active` that are not 0, and 0 elsewhere; and how many entries that are."""
    phi = [Activation.identity()]
    # A layer without outputs multiplies nothing and lists what is active. Then ∂L/∂h of a layer with the weight Wᵀ and
    # ∂L/∂out = x is the product that is wanted, at these entries alone.
    listed = backend.compile([active.new_empty((0, active.shape[1]))], [None], phi).forward(active)
    found = backend.compile([weight.detach().t()], [None], phi).backward(x, listed.saved, True, StepPlan(1))
    assert found is not None
    return found, listed.active
