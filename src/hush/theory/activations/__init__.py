"""Activations: the protocol the theory asks, its two implementations, and the registry of those that have a name."""

from hush.theory.activations import builtin as builtin  # importing it registers them
from hush.theory.activations.constructors import (
    crelu,
    cst,
    fatrelu,
    gelu,
    hardtanh,
    identity,
    leaky_relu,
    relu,
    shifted_relu,
    silu,
    soft_threshold,
    tanh,
)
from hush.theory.activations.piecewise import PiecewiseLinear
from hush.theory.activations.protocol import Activation
from hush.theory.activations.registry import (
    ActivationEntry,
    Kernel,
    TorchTwin,
    activation,
    activation_names,
    clipped_names,
    entries,
    entry_of,
    odd_threshold,
    one_sided_threshold,
    register,
    unregister,
)
from hush.theory.activations.relative import Relative
from hush.theory.activations.smooth import Smooth

__all__ = [
    "Activation",
    "ActivationEntry",
    "Kernel",
    "PiecewiseLinear",
    "Relative",
    "Smooth",
    "TorchTwin",
    "activation",
    "activation_names",
    "clipped_names",
    "crelu",
    "cst",
    "entries",
    "entry_of",
    "fatrelu",
    "gelu",
    "hardtanh",
    "identity",
    "leaky_relu",
    "odd_threshold",
    "one_sided_threshold",
    "register",
    "relu",
    "shifted_relu",
    "silu",
    "soft_threshold",
    "tanh",
    "unregister",
]
