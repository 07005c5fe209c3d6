"""What runs on the engine in an accelerated model, and what was left and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from hush.nn.relative import Relative

from .block_reader import looks_residual, read_block
from .convolution_form import form_of
from .cpu import isa
from .gated_reader import read_gated
from .modules import all_stretches
from .own_forwards import (
    has_own_forward,
    is_quiet,
    is_sparse_convolution,
    is_sparse_gated,
    is_sparse_linear,
)

__all__ = ["Report", "make_report"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class Report:
    """Names of modules.

    Attributes:
        taken: the Linears of each fused stretch, in order; a convolution behind an activation is a stretch by itself.
        alone: the other Linears and convolutions: each leaves out the zeros of its own input, and a Linear that reads
            none those of its output's gradient.
        left: (name, reason) of the layers with weights that stay with torch, and of activations that break a stretch.
        apart: (name, reason) of what stands in a Sequential like a residual block and runs module by module.
        gated: modules that compute φ(gate(x)) · up(x), and leave out of `up` what φ makes zero.
        gated_linears: the name of `up` in each of them.
    """

    taken: tuple[tuple[str, ...], ...]
    alone: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    apart: tuple[tuple[str, str], ...] = ()
    gated: tuple[str, ...] = ()
    gated_linears: tuple[str, ...] = ()

    def __str__(self) -> str:
        layers = sum(len(names) for names in self.taken)
        lines = [f"{layers} layers in {len(self.taken)} fused stretches on {isa()}"]
        for names in self.taken:
            lines.append(f"  fused  {names[0]}" + (f" … {names[-1]} ({len(names)} layers)" if len(names) > 1 else ""))
        lines += [
            f"  gated  {name}: {up} is computed where its activation is not zero"
            for name, up in zip(self.gated, self.gated_linears, strict=True)
        ]
        lines += [f"  alone  {name}: leaves out zeros of its input or of its output's gradient" for name in self.alone]
        lines += [
            f"  apart  {name}: its forward {reason}, so its modules run one by one" for name, reason in self.apart
        ]
        lines += [f"  left   {name}: {reason}" for name, reason in self.left]
        return "\n".join(lines)


def make_report(model: nn.Module) -> Report:
    names = {id(module): name or "(model)" for name, module in model.named_modules()}
    stretches = all_stretches(model)
    taken = [tuple(names[id(linear)] for linear in stretch.linears) for stretch in stretches]
    activations = {id(activation) for stretch in stretches for activation in stretch.activations}
    # The branch of a fused block may be a Sequential with a stretch of its own, for whoever calls it alone.
    taken = [names_of for names_of in taken if not any(set(names_of) < set(other) for other in taken)]
    fused = {name for stretch in taken for name in stretch}
    alone = [names[id(m)] for m in model.modules() if _is_taken(m) and names[id(m)] not in fused]
    others = [m for m in model.modules() if id(m) not in activations]
    left = [(names[id(m)], reason) for m in others if (reason := _why_left(m)) is not None]
    readings = [(m, read_gated(m, listened=True)) for m in model.modules() if is_sparse_gated(m)]
    gated = [(m, found) for m, found in readings if not isinstance(found, str)]
    return Report(
        tuple(taken),
        tuple(alone),
        tuple(left),
        tuple(_apart(model, names)),
        tuple(names[id(m)] for m, _ in gated),
        tuple(next(name for name, child in m.named_children() if child is found.up) for m, found in gated),
    )


def _apart(model: nn.Module, names: dict[int, str]) -> Iterator[tuple[str, str]]:
    for container in model.modules():
        for child in container.children() if type(container) is nn.Sequential else ():
            if looks_residual(child):
                found = read_block(child) if is_quiet(child) else "is listened to, or has been replaced"
                if isinstance(found, str):
                    yield names[id(child)], found


def _is_taken(module: nn.Module) -> bool:
    return is_sparse_linear(module) or is_sparse_convolution(module)


def _why_left(module: nn.Module) -> str | None:
    kind = type(module).__name__
    if _is_taken(module):
        return None
    if isinstance(module, Relative):
        return f"{kind}: relative thresholds run on the engine in chains alone; a Linear behind it leaves out its zeros"
    if isinstance(module, _CONVOLUTIONS):
        if type(module) is not nn.Conv2d:
            return f"{kind}: of convolutions, plain nn.Conv2d alone runs on the engine"
        form = form_of(module)
        return f"Conv2d: {form}" if isinstance(form, str) else "its forward has been replaced"
    if isinstance(module, nn.MultiheadAttention):
        return f"{kind}: applies its weights by function, not by a Linear"
    if isinstance(module, nn.Linear):
        if has_own_forward(module):
            return "its forward has been replaced"
        return f"{kind} is not a plain nn.Linear"
    return None
