"""What the children of an accelerated Sequential run as: themselves, or stretches of them.

A module whose forward calls its children one after another (`hush.sparse.line_reader`) is a Sequential too.
"""

from __future__ import annotations

import types
from typing import Any

from torch import Tensor, nn

from hush.nn.centering.centered_layer import centered_layer_of

from .activation import activation_of
from .backend import Backend
from .block_reader import Reading, looks_residual, read_block
from .conditions import backend_of
from .convolution_stretch import ConvolutionStretch
from .line_reader import read_line
from .own_forwards import does_nothing, has_own_forward, is_quiet, is_sparse_convolution, is_sparse_linear
from .residual_stretch import ResidualStretch
from .settings import Settings
from .straight_line import is_straight_line
from .stretch import Stretch
from .witness import Witness

__all__ = ["Fused", "Line", "Sequence", "children_in_order", "fuse", "run_steps"]


class Sequence:
    """The children of a Sequential, in the order in which they run, with its stretches in place of their members."""

    def __init__(self, container: nn.Module, settings: Settings) -> None:
        self.container, self.settings = container, settings
        self._witness: Witness | None = None
        self._steps: list[nn.Module | Fused] = []

    def __getstate__(self) -> dict[str, Any]:
        # A copy looks at its own children.
        return {**self.__dict__, "_witness": None, "_steps": []}

    def steps(self) -> list[nn.Module | Fused]:
        if self._witness is None or not self._witness.holds():
            self._witness, self._steps = _plan(self.container, self.settings)
        return self._steps


class Line(Sequence):
    """The same of a module whose own forward calls its children one after another."""

    def __init__(self, container: nn.Module, settings: Settings) -> None:
        super().__init__(container, settings)
        self._code: types.CodeType | None = None  # of the forward that was read

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_code": None}

    def steps(self) -> list[nn.Module | Fused]:
        code = getattr(type(self.container).forward, "__code__", None)
        if code is not self._code:
            self._witness, self._code = None, code
        return super().steps()

    def run(self, x: Tensor) -> Tensor | None:
        """The module's output, or None where its own forward is to run."""
        steps = self.steps() if backend_of(x) is not None else []
        return run_steps(steps, x) if any(type(step) is Fused for step in steps) else None


class Fused:
    """A stretch, and the children it stands for."""

    def __init__(self, stretch: Stretch | ConvolutionStretch, members: list[nn.Module]) -> None:
        self.stretch, self.members = stretch, members

    def run(self, h: Tensor, backend: Backend | None) -> Tensor:
        out = None if backend is None else self.stretch.run(h, backend)
        if out is None:
            out = h
            for module in self.members:
                out = module(out)
        return out


def run_steps(steps: list[nn.Module | Fused], x: Tensor) -> Tensor:
    for step in steps:
        x = step.run(x, backend_of(x)) if type(step) is Fused else step(x)  # type: ignore[operator]
    return x


def children_in_order(container: nn.Module) -> list[nn.Module]:
    """The children as its forward calls them; none where it does anything else."""
    if type(container) is nn.Sequential:
        return list(container)
    found = read_line(container)
    return [] if isinstance(found, str) else found


def _plan(container: nn.Module, settings: Settings) -> tuple[Witness, list[nn.Module | Fused]]:
    """What runs now, and what it depends on."""
    witness = Witness()
    witness.children(container)
    children = children_in_order(container)
    if type(container) is not nn.Sequential:
        for name in container._modules:  # an attribute of this name would be read in the child's place
            witness.entry(container.__dict__, name)
    for child in children:
        if child is not None:
            _witness_child(witness, child)
            if looks_residual(child) and is_straight_line(child):
                # A hook inside that comes or goes, as hush.hold has them, changes what can be fused.
                for inner in child.modules():
                    _witness_child(witness, inner)
                    witness.children(inner)
    return witness, fuse(children, settings)


def _witness_child(witness: Witness, child: nn.Module) -> None:
    witness.module(child)
    if isinstance(child, nn.Dropout):
        witness.entry(child.__dict__, "training")
        witness.entry(child.__dict__, "p")
    if "inplace" in child.__dict__:
        witness.entry(child.__dict__, "inplace")


def fuse(
    children: list[nn.Module], settings: Settings, blocks: bool = True, centered: bool = True
) -> list[nn.Module | Fused]:
    """Each child, or the stretch that it begins; residual ones and convolutions only where `blocks` are to be looked
    for, Linears whose gradients are centred only with `centered`."""
    steps: list[nn.Module | Fused] = []
    at = 0
    while at < len(children):
        stretch: Stretch | ConvolutionStretch | None
        stretch, end = _chain_from(children, at, settings, centered)
        if stretch is None and blocks:
            stretch, end = _convolution_from(children, at, settings)
        if stretch is None and blocks:
            stretch, end = _residual_from(children, at, settings)
        steps.append(children[at] if stretch is None else Fused(stretch, children[at:end]))
        at = max(end, at + 1)
    return steps


def _convolution_from(
    children: list[nn.Module], start: int, settings: Settings
) -> tuple[ConvolutionStretch | None, int]:
    """The activation and the convolution that begin with child `start`, and where they end."""
    activation, at = _next(children, start)
    if not _is_activation(activation) or getattr(activation, "inplace", False):
        return None, start
    convolution, at = _next(children, at)
    if convolution is None or not is_sparse_convolution(convolution) or not is_quiet(convolution):
        return None, start
    return ConvolutionStretch(activation, convolution, settings), at


def _residual_from(children: list[nn.Module], start: int, settings: Settings) -> tuple[Stretch | None, int]:
    """The stretch of residual blocks that begins with child `start`, and where it ends."""
    readings: list[Reading] = []
    end = at = start
    while True:
        block, at = _next(children, at)
        if block is None or not looks_residual(block) or not is_quiet(block):
            break
        found = read_block(block)
        if isinstance(found, str) or (readings and _width(found) != _width(readings[0])):
            break
        readings.append(found)
        end = at
    return (ResidualStretch(readings, settings), end) if readings else (None, start)


def _width(reading: Reading) -> int:
    return int(reading.linear.out_features)  # type: ignore[arg-type]


def _chain_from(
    children: list[nn.Module], start: int, settings: Settings, centered: bool
) -> tuple[Stretch | None, int]:
    """The stretch of activations and Linears that begins with child `start`, and where it ends."""
    activations: list[nn.Module] = []
    linears: list[nn.Module] = []
    end = at = start
    while True:
        activation, at = _next(children, at)
        # In place at the head, an activation would change a tensor that others may hold; further on nobody sees it.
        if not _is_activation(activation, relative=True) or (not linears and getattr(activation, "inplace", False)):
            break
        linear, at = _next(children, at)
        if (
            linear is None
            or not is_sparse_linear(linear)
            or not (is_quiet(linear) or (centered and _is_only_centered(linear)))
            or "weight" not in linear._parameters
        ):
            break
        activations.append(activation)  # type: ignore[arg-type]
        linears.append(linear)
        end = at
    return (Stretch(activations, linears, settings), end) if linears else (None, start)


def _next(children: list[nn.Module], at: int) -> tuple[nn.Module | None, int]:
    """The next child that does anything, and the place after it."""
    while at < len(children) and does_nothing(children[at]):
        at += 1
    return (children[at], at + 1) if at < len(children) else (None, at)


def _is_activation(child: nn.Module | None, *, relative: bool = False) -> bool:
    return child is not None and is_quiet(child) and activation_of(child, relative=relative) is not None


def _is_only_centered(linear: nn.Module) -> bool:
    """Its only hook centres the gradient, which the kernels do as well."""
    return not has_own_forward(linear) and centered_layer_of(linear) is not None
