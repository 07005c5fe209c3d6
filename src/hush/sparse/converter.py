"""Lets a model's Linears and convolutions leave out zeros, in place, and takes it back.

`accelerate` gives every plain nn.Linear and nn.Conv2d, every nn.Sequential with such in it, every module that calls
such children one after another, and every one that computes φ(gate(x)) · up(x), another forward.
Nothing is traced and nothing is remembered of how the model computes: whatever a forward does, it calls these modules,
and each of them looks at what it is given and at what it is at that moment.
"""

from __future__ import annotations

import torch
import torch.distributed
from torch import nn

from . import convolution_crossover, crossover, dense_forward, fused_step
from .acceleration_report import Report, make_report
from .block_reader import looks_residual
from .convolution_form import ConvolutionForm, form_of
from .gated_reader import read_gated
from .in_place_layout import inner_linears, lay_out, sparse_linears, widening_linears
from .modules import accelerate_gated, accelerate_line, accelerate_module, decelerate_module
from .own_forwards import has_own_forward, is_sparse_convolution, is_sparse_linear
from .sequence_plan import children_in_order
from .settings import Layout, Settings
from .straight_line import is_straight_line

__all__ = ["accelerate", "decelerate", "report"]

_REPORT = "_hush_report"


def accelerate(
    model: nn.Module,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    adaptive: bool = True,
    frozen: bool = False,
    layout: Layout = "torch",
    frozen_dtype: torch.dtype = torch.float32,
    watch: bool = True,
) -> nn.Module:
    """Lets the model's Linears and Conv2ds leave out zeros they meet: same outputs, same gradients, fewer flops.

    In place; the model is returned. Its parameters, buffers, names and hooks stay as they are, and so does every path
    through it: children can be called, replaced, added, removed, patched, cast, copied and saved as before. Whatever
    the kernels do not compute exactly (other devices and dtypes, autocast, torch.func, tracing, hooks on the inside)
    runs on torch's own operations.

    Arguments:
        optimizer: a torch.optim.SGD or AdamW over this model's parameters, for `hush.sparse.step(model, loss)`, which
            applies the update inside the backward. `loss.backward()` and `optimizer.step()` stay what they are.
        adaptive: run dense where the activations are denser than the crossover measured on this machine; what is not
            known of it yet is measured now, in about a second for each new width. False asks no clock: stretches of
            Linears run sparse always, and what stands by itself, or is a convolution, where at most about 0.3 of what
            it reads, or of its output's gradient, is not zero.
        frozen: for inference only: the engine reads a copy of its own of the weights, laid out for it. Parameters that
            are replaced, loaded or changed in place are noticed and copied again; what is written through `.data`
            leaves no trace and is not.
        layout: "torch" leaves the weights as they lie, and the engine copies them at each call, which small batches
            feel. "input_major" lays them out in place, with strides (1, out): faster, but what calls `.view(-1)` on
            parameters (LBFGS, parameters_to_vector, safetensors) refuses them, and a seed draws other numbers into
            them. An optimizer brings "input_major" with it, but for a Linear that stands by itself and widens: it is
            taken for the first of a feed-forward block, whose backward reads weights as torch has them.
        frozen_dtype: torch.bfloat16 rounds the frozen copy, for half the memory traffic; outputs then differ by it.
        watch: False, with frozen=True, does not look at the parameters again: you promise that they stay as they are.
            It saves half a microsecond a layer, which one sample feels.

    `report(model)` tells what was taken and left; `decelerate(model)` undoes it. A deepcopy is accelerated too; what
    comes out of a file or another process is a plain model, to be accelerated there.

    Raises:
        ValueError: if the optimizer cannot be fused or holds no parameter of this model, or arguments contradict.
    """
    settings = _check(optimizer, adaptive, frozen, layout, frozen_dtype, watch)
    if optimizer is not None:
        fused_step.check_optimizer(optimizer, model)
    decelerate(model)
    for module in model.modules():
        if type(module) is nn.Linear and "weight" in module._parameters and not has_own_forward(module):
            accelerate_module(module, settings)
        elif type(module) is nn.Conv2d and "weight" in module._parameters and not has_own_forward(module):
            _accelerate_convolution(module, settings)
    for module in model.modules():
        if type(module) is nn.Sequential and not has_own_forward(module) and _has_layer(module):
            accelerate_module(module, settings)
    for module in model.modules():
        # Hooks of hush.hold come and go; whether somebody listens is asked again at each call.
        if not module._modules or has_own_forward(module) or type(module) is nn.Sequential:
            continue
        if not isinstance(read_gated(module, listened=True), str):
            accelerate_gated(module, settings)
        elif _has_layer(module):
            accelerate_line(module, settings)
    # Where the caller has not asked for a layout, each weight lies as the step will read it. The first of two matrices
    # of a fused block is only ever read row by row.
    row_major = inner_linears(model) + (widening_linears(model) if layout != "input_major" else [])
    if settings.layout == "input_major":
        lay_out(model, row_major)
    if adaptive:
        _measure(sparse_linears(model), row_major, settings)
        dense_forward.ensure_measured(m.weight for m in row_major)
        convolution_crossover.ensure_measured(_convolutions(model))
    if optimizer is not None:
        fused_step.bind(model, optimizer)
    model.__dict__[_REPORT] = make_report(model)
    return model


def _check(
    optimizer: torch.optim.Optimizer | None,
    adaptive: bool,
    frozen: bool,
    layout: str,
    frozen_dtype: torch.dtype,
    watch: bool,
) -> Settings:
    if layout not in ("torch", "input_major"):
        raise ValueError(f'The layout is {layout!r}; it must be "torch" or "input_major".')
    if frozen_dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"frozen_dtype is {frozen_dtype}; it must be torch.float32 or torch.bfloat16.")
    if frozen_dtype != torch.float32 and not frozen:
        raise ValueError(f"frozen_dtype is {frozen_dtype}, which goes with frozen=True.")
    if not watch and not frozen:
        raise ValueError("watch=False promises that the parameters stay as they are, which goes with frozen=True.")
    if frozen and optimizer is not None:
        raise ValueError("frozen=True is for inference only, so there is nothing for an optimizer to do.")
    in_place = optimizer is not None or layout == "input_major"
    distributed = torch.distributed
    if in_place and distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise ValueError(
            "Among several processes weights must lie as torch has them, since DistributedDataParallel lays its "
            "gradients out like them, and no update can be fused, since gradients are averaged first; call "
            'accelerate(model) without optimizer= and layout="input_major".'
        )
    return Settings(adaptive, frozen, "input_major" if in_place else "torch", frozen_dtype, watch)


def _has_layer(container: nn.Module) -> bool:
    """Whether among the children that it calls one after another there is a Linear, a convolution or a residual block,
    perhaps one that cannot be fused at this moment."""
    return any(
        is_sparse_linear(c) or is_sparse_convolution(c) or (looks_residual(c) and is_straight_line(c))
        for c in children_in_order(container)
        if c is not None
    )


def _measure(linears: list[nn.Linear], row_major: list[nn.Linear], settings: Settings) -> None:
    """What is not known yet of these Linears' widths, in the layout that each of them has."""
    rows = {id(m) for m in row_major}
    widths: dict[bool, list[int]] = {False: [], True: []}
    for m in linears:
        if m.weight.dim() == 2:
            turns = not settings.frozen and (settings.layout == "torch" or id(m) in rows)
            widths[turns].append(max(m.weight.shape))
    for turns, found in widths.items():
        crossover.ensure_measured(found, turns=turns)


def _accelerate_convolution(module: nn.Conv2d, settings: Settings) -> None:
    if isinstance(form_of(module), ConvolutionForm):
        accelerate_module(module, settings)


def _convolutions(model: nn.Module) -> list[tuple[ConvolutionForm, torch.Tensor]]:
    found = [(form_of(m), m.weight) for m in model.modules() if isinstance(m, nn.Conv2d) and is_sparse_convolution(m)]
    return [(form, w) for form, w in found if isinstance(form, ConvolutionForm) and w.dim() == 4]


def decelerate(model: nn.Module) -> nn.Module:
    """Undoes `accelerate`: the modules' own forwards, weights row by row."""
    for module in model.modules():
        settings = decelerate_module(module)
        if settings is None or settings.layout != "input_major" or not isinstance(module, nn.Linear):
            continue
        weight = module._parameters.get("weight")
        if weight is not None and not weight.is_contiguous():
            with torch.no_grad():
                gradient, weight.grad = weight.grad, None
                weight.data = weight.data.contiguous()
                weight.grad = None if gradient is None else gradient.contiguous()
    fused_step.unbind(model)
    model.__dict__.pop(_REPORT, None)
    return model


def report(model: nn.Module) -> Report:
    """What the last `accelerate` of this model took and left."""
    found = model.__dict__.get(_REPORT)
    if not isinstance(found, Report) or (
        (found.taken or found.alone) and not (sparse_linears(model) or _convolutions(model))
    ):
        raise ValueError("This model is not accelerated; call hush.sparse.accelerate(model) first.")
    return found
