"""A Conv2d of a model, alone or behind an activation, on a backend's kernels.

Everything is looked at anew at each call: the module's parameters and form, the activation's threshold, and how many
units of this very input are active, which decides for each product whether it runs sparse or on torch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from . import convolution_crossover
from .activation import Activation, activation_of
from .backend import Backend
from .conditions import has_memory, is_plain
from .convolution_backend import ConvolutionBackend, ConvolutionProgram, runs_convolutions
from .convolution_form import ConvolutionForm, form_of
from .convolution_gradients import ConvolutionCall, Limits, run_convolution
from .settings import Settings
from .sight import Sight

__all__ = ["ConvolutionStretch", "convolve_now"]

_LOOKS = 32  # calls between two looks at the density while the input is too dense
# What the kernels stand for. Whoever replaces one of these wants to be called.
_STANDS_FOR = (nn.Conv2d.forward, nn.Conv2d._conv_forward, F.conv2d, F.pad)


class ConvolutionStretch:
    """x ↦ conv(φ(x)), or conv(x) by the zeros of x."""

    def __init__(self, activation: nn.Module | None, convolution: nn.Module, settings: Settings) -> None:
        self.activations = [] if activation is None else [activation]
        self.linears, self.settings = [convolution], settings
        self.density = 0.0  # of the last input that was looked at
        self._limit = 1.0  # up to which any product of it would have been sparse
        self._calls = 0

    def run(self, x: Tensor, backend: Backend) -> Tensor | None:
        """The output, or None where torch is to run the modules."""
        if not self._looks():
            return None
        (module,) = self.linears
        patched = (nn.Conv2d.forward, nn.Conv2d._conv_forward, F.conv2d, F.pad) != _STANDS_FOR
        if patched or "_conv_forward" in module.__dict__ or not runs_convolutions(backend):
            return None
        form = form_of(module)
        phi = activation_of(self.activations[0]) if self.activations else Activation.identity()
        weight, bias = module.weight, module.bias
        if isinstance(form, str) or phi is None or not isinstance(weight, Tensor):
            return None
        assert bias is None or isinstance(bias, Tensor)
        if not takes(backend, form, x, weight, bias) or not _lies_as_torch_has_it(form, weight):
            return None
        limits = convolution_crossover.limits(form, x, weight, self.settings.adaptive)
        self._limit = limits.largest
        if self._limit <= 0.0:
            self.density = 1.0  # nothing would be sparse, whatever it is
            return None
        program = backend.compile_convolution(form, x, weight, phi)
        self.density = program.look(x) / x.numel()
        return convolve_now(program, form, phi, x, weight, bias, self.density, limits)

    def _looks(self) -> bool:
        """Whether to look at this input: at what was too dense, only now and then."""
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            return True  # checkpointing runs the same input twice and must meet the same decision
        if not self.settings.adaptive:
            return True  # neither a clock nor how many calls there were before may decide
        self._calls += 1
        return self.density <= self._limit or self._calls % _LOOKS == 0


def _lies_as_torch_has_it(form: ConvolutionForm, weight: Tensor) -> bool:
    """Whether torch's own output lies channels-last, when x does: its circular padding forgets it, weights remember."""
    return not form.circular or (weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous())


def takes(backend: ConvolutionBackend, form: ConvolutionForm, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether this backend computes this convolution as torch would."""
    if not all(is_plain(p) and has_memory(p) for p in (weight, bias) if p is not None):
        return False
    return form.fits(x, weight) and backend.takes_images(x) and backend.takes_convolution(weight, bias)


def convolve_now(
    program: ConvolutionProgram,
    form: ConvolutionForm,
    phi: Activation,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    density: float,
    limits: Limits,
) -> Tensor | None:
    """The output for the x that the program has just looked at; None where no product of this call would be sparse."""
    wants = [t is not None and t.requires_grad for t in (x, weight, bias)]
    training = torch.is_grad_enabled() and any(wants)
    reads_zeros = phi == Activation.identity()
    sight = Sight.of(x) if training and reads_zeros and x.requires_grad else None
    call = ConvolutionCall(program, form, phi, density, limits, sight)
    if not training:
        return call.output(program.list_active(x), x, weight, bias) if density <= limits.output else None
    of_x = wants[0] and (sight is not None or not reads_zeros)
    backward = max(
        limits.both if of_x and wants[1] else -1.0, limits.input if of_x else -1.0, limits.weight if wants[1] else -1.0
    )
    return run_convolution(x, call, weight, bias) if density <= max(limits.output, backward) else None
