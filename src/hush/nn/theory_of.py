"""From a torch activation module to the theory's φ, so that any model can be set beside the theory."""

from collections.abc import Iterator

import torch
from torch import nn

from hush import theory
from hush.nn.activations import CST, CReLU, FATReLU, ShiftedReLU, SoftThreshold

__all__ = ["activations_of", "is_activation", "phi_of"]

# What torch files under activations and is none in the sense of φ: they mix units, or turn outputs into probabilities.
_NOT_ELEMENTWISE = ("GLU", "LogSoftmax", "MultiheadAttention", "Softmax", "Softmax2d", "Softmin")
_TORCH = tuple(
    kind
    for name, kind in vars(torch.nn.modules.activation).items()
    if isinstance(kind, type) and issubclass(kind, nn.Module) and name in torch.nn.modules.activation.__all__
    if name not in _NOT_ELEMENTWISE
)
_HUSH = (ShiftedReLU, SoftThreshold, CReLU, CST, FATReLU)


def is_activation(module: nn.Module) -> bool:
    """Whether `module` is an elementwise activation of hush or of torch.nn."""
    return isinstance(module, (*_HUSH, *_TORCH))


def activations_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """(name, module) of every activation in `model`, in order of registration."""
    return ((name, module) for name, module in model.named_modules() if is_activation(module))


def phi_of(module: nn.Module) -> theory.PiecewiseLinear | None:
    """φ of an activation module; None where it is not piecewise linear (GELU, Tanh, …)."""
    match module:
        case CReLU():
            return theory.crelu(module.threshold, module.clip)
        case CST():
            return theory.cst(module.threshold, module.clip)
        case ShiftedReLU():
            return theory.shifted_relu(module.threshold)
        case SoftThreshold():
            return theory.soft_threshold(module.threshold)
        case FATReLU():
            return theory.fatrelu(module.threshold)
        case nn.ReLU():
            return theory.relu()
        case nn.LeakyReLU():
            return theory.leaky_relu(module.negative_slope)
        case nn.Softshrink():
            return theory.soft_threshold(module.lambd)
        case nn.Hardtanh():  # ReLU6 is one
            low, high = float(module.min_val), float(module.max_val)
            return theory.PiecewiseLinear((low, high), (0.0, 1.0, 0.0), (low, 0.0, high), "hardtanh")
        case nn.Threshold():
            kink, value = float(module.threshold), float(module.value)
            return theory.PiecewiseLinear((kink,), (0.0, 1.0), (value, 0.0), "threshold")
    return None
