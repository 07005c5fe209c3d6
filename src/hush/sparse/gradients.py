"""A stretch of layers with gradients: forward on a backend's program, backward by a step plan.

Nothing between the layers exists, so nobody can look at it; what stands at the two ends behaves as with torch's own
operations. Two cases need care.

*Second derivatives.* With create_graph=True the backward runs the layers again with torch's operations, which can be
differentiated as often as one likes. It needs a tensor that is connected to the input h, but not h's values, of which
φ(h) is saved already: that tensor is the `edge`, a single zero expanded to the shape of h.

*A Linear that reads an x with zeros in it.* ∂L/∂x at these zeros is computed only where somebody sees it
(`hush.sparse.sight`).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hush.nn.centering.centered_layer import CenteredLayer, centered_output, share_means

from .activation import Activation
from .backend import Forward, Program, RelativeProgram
from .conditions import has_memory
from .sight import Sight
from .step_plan import Part, Rule, States, StepPlan, place_of

__all__ = [
    "Attached",
    "Call",
    "Edge",
    "FusedParameter",
    "FusedUpdate",
    "StretchFunction",
    "dense_chain",
    "gradients_of",
    "run_training",
]


class FusedParameter(NamedTuple):
    """A parameter's place in a list, and the step it takes."""

    place: int
    rule: Rule
    states: States


class FusedUpdate(Protocol):
    """The owner of an open step: it may apply gradients of some parameters while they are made."""

    def plan(self, call: Call, plan: StepPlan, parameters: Sequence[Tensor]) -> set[int]:
        """Put updates into the plan; the positions of the parameters that are taken care of."""

    def updates(self, parameters: Sequence[Tensor], memories: Sequence[int]) -> Sequence[FusedParameter]:
        """Those of the parameters that take their step now; `memories`: where each of them lies."""

    def may_change(self, p: Tensor) -> bool:
        """Whether the optimizer has this parameter; the backward then changes it."""

    def done(self) -> None:
        """The backward of this stretch has run."""


def _ignore(active: int) -> None:
    pass


class Centered(NamedTuple):
    """A Linear whose gradient is centred (`hush.center_gradients`), and its hook, which the kernels stand for."""

    module: nn.Module
    layer: CenteredLayer


@dataclass(frozen=True)
class Call:
    """What a run of a stretch is made of besides tensors that have gradients.

    `parameters` are W₁, …, W_L and then the biases that exist, whose layers `bias_layers` names. A residual stretch has
    a Call of its own (`hush.sparse.residual_gradients`).
    """

    program: Program
    phis: tuple[Activation, ...]
    bias_layers: tuple[int, ...]
    reads_zeros: bool = False  # a single Linear on an x with zeros in it; else h goes through φ₁ first
    sight: Sight | None = None
    note: Callable[[int], None] = _ignore  # is told how many units were active
    memories: tuple[int, ...] = ()  # where each parameter lies, which a fused step compares
    centered: tuple[Centered | None, ...] = ()  # layers whose weights' gradients are centred; empty where none is

    @property
    def kept(self) -> int:
        """So many parameters, the first ones, are read again in the backward; behind them come the biases."""
        return len(self.phis)

    def read_again(self, edge: bool, needed: Sequence[bool]) -> Sequence[bool]:
        """Of each kept parameter whether the backward will read it, given whose gradients are needed: a weight is read
        on the way to something in front of it, as F.linear has it. What is not read may be changed before that."""
        n = len(self.phis)
        if edge:
            return [True] * n
        learns = list(needed[:n])
        for layer, need in zip(self.bias_layers, needed[n:], strict=True):
            learns[layer] = learns[layer] or need
        return list(itertools.accumulate([False, *learns[:-1]], operator.or_))

    def place(self, parameter: int) -> tuple[int, Part]:
        """The layer of a parameter, and what it is there."""
        n = len(self.phis)
        return (parameter, "weight") if parameter < n else (self.bias_layers[parameter - n], "bias")

    def places(self) -> tuple[int, ...]:
        """Of every parameter its place in a step plan."""
        return _places(len(self.phis), self.bias_layers)

    def new_plan(self) -> StepPlan:
        return StepPlan(len(self.phis))

    def with_torch(
        self,
        program: Program,
        edge: Tensor | None,
        x: Tensor | None,
        saved: Tensor,
        parameters: Sequence[Tensor],
        batch: int,
    ) -> Tensor:
        """The output once more by torch's operations, from what was saved, connected to the edge."""
        weights, biases = self.split(parameters)
        first = self._first(program, edge, x, saved, batch)
        means = self._noted_means(program, saved, batch)
        out = F.linear(first, weights[0], biases[0])
        out = out if means[0] is None else centered_output(None, out, weights[0], means[0])
        return dense_chain(out, weights[1:], biases[1:], self.phis[1:], means[1:])

    def _first(self, program: Program, edge: Tensor | None, x: Tensor | None, saved: Tensor, batch: int) -> Tensor:
        """What the first Linear reads, connected to the edge."""
        if self.phis[0].relative:
            h = cast(RelativeProgram, program).first_inputs(saved, batch)
            return self.phis[0](h if edge is None else _attached(edge, h, torch.ones_like(h)))
        first = program.first_activations(saved, batch) if x is None else x
        if edge is None:
            return first
        return _attached(edge, first, torch.ones_like(first) if self.reads_zeros else self.phis[0].slope(first))

    def _noted_means(self, program: Program, saved: Tensor, batch: int) -> list[Tensor | None]:
        """The mean inputs of the centred layers, which their hooks note; None for the others."""
        means: list[Tensor | None] = [None] * len(self.phis)
        centered = [(i, c) for i, c in enumerate(self.centered) if c is not None]
        if centered:
            shared, rows = share_means(program.mean_inputs(saved, batch), batch, centered[0][1].layer.process_group)
            for i, c in centered:
                means[i] = shared[i]
                c.layer.note(c.module, shared[i], rows)
        return means

    def split(self, parameters: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        """(weights, biases), with None where a layer has no bias."""
        n = len(self.phis)
        biases: list[Tensor | None] = [None] * n
        for layer, b in zip(self.bias_layers, parameters[n:], strict=True):
            biases[layer] = b
        return list(parameters[:n]), biases


@lru_cache(maxsize=64)
def _places(layers: int, bias_layers: tuple[int, ...]) -> tuple[int, ...]:
    return (
        *(place_of(layer, "weight") for layer in range(layers)),
        *(place_of(layer, "bias") for layer in bias_layers),
    )


def dense_chain(
    h: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    phis: Sequence[Activation],
    means: Sequence[Tensor | None] | None = None,
) -> Tensor:
    """W_L φ_L(… W₁ φ₁(h) + b₁ …) + b_L with torch's own operations; gradients centred where there is a mean input."""
    for w, b, phi, mean in zip(weights, biases, phis, means or [None] * len(phis), strict=True):
        h = F.linear(phi(h), w.to(h.dtype), b)
        h = h if mean is None else centered_output(None, h, w, mean)
    return h


class Edge(torch.autograd.Function):
    """h ↦ a tensor of h's shape and place in the graph that takes up no memory."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.new_zeros(()).expand(h.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


class Attached(torch.autograd.Function):
    """`value` as if it had been computed from the edge, with this slope."""

    @staticmethod
    def forward(ctx: Any, edge: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        # masked_fill and not a product: 0 · ∞ must stay 0.
        return grads[0].masked_fill(slope == 0, 0.0), None, None


def _attached(edge: Tensor, value: Tensor, slope: Tensor) -> Tensor:
    attached: Tensor = Attached.apply(edge, value, slope)  # type: ignore[no-untyped-call]
    return attached


class StretchFunction(torch.autograd.Function):
    """(edge, h, call, *parameters) ↦ out. `step` sets `fused` on the node of a backward that it opens."""

    @staticmethod
    def forward(ctx: Any, edge: Tensor | None, h: Tensor, call: Call, *parameters: Tensor) -> Any:
        result: Forward = call.program.forward(h)
        call.note(result.active)
        ctx.call, ctx.program, ctx.fused = call, result.program, None
        ctx.parameters, ctx.before = parameters, None if edge is None else edge.grad_fn
        edge_needed, _, _, *needed = ctx.needs_input_grad
        # autograd refuses a backward after an in-place change of what is saved. So it is for the weights and x, where
        # F.linear has it so; what else there is may change, since nobody needs it unless for second derivatives.
        again = call.read_again(edge_needed, needed)
        kept = [p if read else None for p, read in zip(parameters[: call.kept], again, strict=True)]
        ctx.save_for_backward(edge, h if call.reads_zeros and needed[0] else None, result.saved, *kept)
        left = [p for p, read in zip(parameters, again, strict=False) if not read]
        ctx.unsaved = [(p, _version(p)) for p in (*left, *parameters[call.kept :])]
        return result.out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        edge, x, saved, *kept = ctx.saved_tensors
        # Those that were saved come out of the saving, since hooks may have packed them.
        parameters = [p if k is None else k for p, k in itertools.zip_longest(ctx.parameters, kept)]
        needed = (ctx.needs_input_grad[0], *ctx.needs_input_grad[3:])
        if torch.is_grad_enabled() or not has_memory(grads[0]):
            if any(_version(p) != version for p, version in ctx.unsaved):
                raise RuntimeError(
                    "A parameter has been modified by an inplace operation since the forward; second derivatives and "
                    "batches of gradients need it."
                )
            first, *rest = _with_torch(ctx.call, ctx.program, grads[0], edge, x, saved, parameters, needed)
        else:
            first, *rest = gradients_of(ctx.call, ctx.program, grads[0], saved, parameters, needed, ctx.fused)
        return first, None, None, *rest


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def run_training(h: Tensor, call: Call, parameters: Sequence[Tensor]) -> Tensor:
    """The stretch on a matrix h, connected to the graph."""
    edge = Edge.apply(h) if h.requires_grad else None  # type: ignore[no-untyped-call]
    out: Tensor = StretchFunction.apply(edge, h.detach(), call, *parameters)  # type: ignore[no-untyped-call]
    return out


def gradients_of(
    call: Call,
    program: Program,
    grad: Tensor,
    saved: Tensor,
    parameters: Sequence[Tensor],
    needed: Sequence[bool],
    fused: FusedUpdate | None = None,
) -> list[Tensor | None]:
    """∂L/∂h and ∂L/∂parameters, None where not needed or already applied by the owner of a fused step."""
    plan = call.new_plan()
    taken = fused.plan(call, plan, parameters) if fused is not None else set()
    gradients: list[Tensor | None] = [None] * len(parameters)
    for i in (i for i in range(len(parameters)) if i not in taken and needed[1 + i]):
        p, (layer, part) = parameters[i], call.place(i)
        if part == "weight":
            gradient = p.new_empty((p.shape[0], p.shape[1]) if program.row_gradients else (p.shape[1], p.shape[0]))
            gradients[i] = gradient if program.row_gradients else gradient.t()
        else:
            gradients[i] = gradient = p.new_empty(p.shape)
        plan.write(layer, part, gradient)
    if call.centered:
        _center(call, program.mean_inputs(saved, grad.shape[0]), grad.shape[0], plan, parameters, needed, taken, fused)
    all_of_it = call.reads_zeros and (call.sight is None or not call.sight.is_free())
    # Before the backward: a fused update changes the weights.
    dense = grad.mm(parameters[0].detach()) if needed[0] and all_of_it else None
    grad_h = program.backward(grad, saved, needed[0] and not all_of_it, plan)
    if fused is not None:
        fused.done()
    return [dense if all_of_it else grad_h, *gradients]


def _center(
    call: Call,
    means: Sequence[Tensor],
    rows: float,
    plan: StepPlan,
    parameters: Sequence[Tensor],
    needed: Sequence[bool],
    taken: set[int],
    fused: FusedUpdate | None,
) -> None:
    """Put the mean inputs of the centred layers into the plan; where the step comes later, their hooks note them."""
    wanted = [(i, c) for i, c in enumerate(call.centered) if c is not None and needed[1 + i]]
    if not wanted:
        return
    shared, rows = share_means([means[i] for i, _ in wanted], rows, wanted[0][1].layer.process_group)
    biases = call.split(parameters)[1]
    for (i, (module, layer)), mean in zip(wanted, shared, strict=True):
        mean = mean.contiguous()
        bias = biases[i]
        updated = i in taken and fused is not None
        keeps = updated and layer.keep_mean and bias is not None and fused is not None and fused.may_change(bias)
        plan.center(i, mean, keep_mean=keeps)
        if not updated:
            layer.note(module, mean, rows)


def _with_torch(
    call: Call,
    program: Program,
    grad: Tensor,
    edge: Tensor | None,
    x: Tensor | None,
    saved: Tensor,
    parameters: Sequence[Tensor],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The same gradients by torch's operations: functions that can be differentiated again, where that is asked for."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        out = call.with_torch(program, edge, x, saved, parameters, grad.shape[0])
    wanted = [t for t, need in zip((edge, *parameters), needed, strict=True) if need]
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=again, allow_unused=True))  # type: ignore[arg-type]
    return [next(found) if need else None for need in needed]
