"""The activations hush brings along: one entry each. Importing this module registers them."""

from collections.abc import Callable
from typing import Any

from hush.theory.activations import constructors
from hush.theory.activations.edge_of_ramp import curvature_on_edge, slope_on_edge
from hush.theory.activations.piecewise import PiecewiseLinear
from hush.theory.activations.protocol import Activation
from hush.theory.activations.registry import (
    ActivationEntry,
    Kernel,
    TorchTwin,
    entry_of,
    odd_threshold,
    one_sided_threshold,
    register,
)
from hush.theory.activations.relative import Relative

__all__: list[str] = []


def _hardtanh(low: float, high: float) -> PiecewiseLinear:
    return PiecewiseLinear((low, high), (0.0, 1.0, 0.0), (low, 0.0, high), "hardtanh")


def _threshold(at: float, value: float) -> PiecewiseLinear:
    return PiecewiseLinear((at,), (0.0, 1.0), (value, 0.0), "threshold")


def _clip_of_one_sided(module: Any) -> tuple[float, float] | None:
    """(τ, m) of a Hardtanh between 0 and m; ReLU6 is one."""
    return (0.0, float(module.max_val)) if module.min_val == 0.0 < module.max_val else None


def _clip_of_odd(module: Any) -> tuple[float, float] | None:
    """(τ, m) of a Hardtanh between −m and m."""
    return (0.0, float(module.max_val)) if module.min_val == -module.max_val < 0.0 else None


# The four of the paper, which `design` chooses for.

register(
    ActivationEntry(
        "shifted_relu",
        constructors.shifted_relu,
        ("threshold",),
        label="ReLU_τ",
        title="shifted ReLU",
        symbol=r"$\mathrm{ReLU}_\tau$",
        threshold_at=one_sided_threshold,
        twin="crelu",
        kernel=Kernel.ONE_SIDED,
        module="hush.nn.activations:ShiftedReLU",
    )
)
register(
    ActivationEntry(
        "soft_threshold",
        constructors.soft_threshold,
        ("threshold",),
        label="ST",
        title="soft threshold",
        symbol=r"$\mathrm{ST}_\tau$",
        odd=True,
        threshold_at=odd_threshold,
        lowest_sparsity=0.0,
        twin="cst",
        kernel=Kernel.ODD,
        module="hush.nn.activations:SoftThreshold",
        torch_twins=(TorchTwin("torch.nn:Softshrink", lambda m: (float(m.lambd),) if m.lambd >= 0.0 else None),),
    )
)
register(
    ActivationEntry(
        "crelu",
        constructors.crelu,
        ("threshold", "clip"),
        label="CReLU",
        title="CReLU: shifted ReLU, clipped",
        symbol=r"$\mathrm{CReLU}_{\tau,m}$",
        threshold_at=one_sided_threshold,
        slope_of_clip=slope_on_edge,
        curvature_of_clip=curvature_on_edge,
        twin="shifted_relu",
        kernel=Kernel.ONE_SIDED,
        module="hush.nn.activations:CReLU",
        torch_twins=(
            TorchTwin("torch.nn:ReLU6", _clip_of_one_sided),
            TorchTwin("torch.nn:Hardtanh", _clip_of_one_sided),
        ),
    )
)
register(
    ActivationEntry(
        "cst",
        constructors.cst,
        ("threshold", "clip"),
        label="CST",
        title="CST: soft threshold, clipped",
        symbol=r"$\mathrm{CST}_{\tau,m}$",
        odd=True,
        threshold_at=odd_threshold,
        lowest_sparsity=0.0,
        # Its two sloped pieces are alike, so V′ and V″ on the Edge of Chaos are those of the one piece of CReLU.
        slope_of_clip=slope_on_edge,
        curvature_of_clip=curvature_on_edge,
        twin="soft_threshold",
        kernel=Kernel.ODD,
        module="hush.nn.activations:CST",
        torch_twins=(TorchTwin("torch.nn:Hardtanh", _clip_of_odd),),
    )
)

# For comparison.

register(
    ActivationEntry(
        "fatrelu",
        constructors.fatrelu,
        ("threshold",),
        label="FATReLU",
        title="FATReLU",
        kernel=Kernel.JUMP,
        module="hush.nn.activations:FATReLU",
        torch_twins=(
            TorchTwin(
                "torch.nn:Threshold",
                lambda m: (float(m.threshold),) if m.value == 0.0 and m.threshold >= 0.0 else None,
            ),
        ),
    )
)
register(
    ActivationEntry(
        "relu",
        constructors.relu,
        label="ReLU",
        title="ReLU",
        kernel=Kernel.ONE_SIDED,
        torch_twins=(TorchTwin("torch.nn:ReLU", lambda m: ()),),
    )
)
register(
    ActivationEntry(
        "leaky_relu",
        constructors.leaky_relu,
        ("slope",),
        label="leaky ReLU",
        torch_twins=(TorchTwin("torch.nn:LeakyReLU", lambda m: (float(m.negative_slope),)),),
    )
)
register(
    ActivationEntry(
        "hardtanh",
        _hardtanh,
        ("low", "high"),
        label="Hardtanh",
        torch_twins=(TorchTwin("torch.nn:Hardtanh", lambda m: (float(m.min_val), float(m.max_val))),),
    )
)
register(
    ActivationEntry(
        "threshold",
        _threshold,
        ("at", "value"),
        label="Threshold",
        torch_twins=(TorchTwin("torch.nn:Threshold", lambda m: (float(m.threshold), float(m.value))),),
    )
)
register(ActivationEntry("identity", constructors.identity, odd=True))
register(
    ActivationEntry(
        "gelu",
        constructors.gelu,
        label="GELU",
        torch_twins=(TorchTwin("torch.nn:GELU", lambda m: () if m.approximate == "none" else None),),
    )
)
register(
    ActivationEntry("silu", constructors.silu, label="SiLU", torch_twins=(TorchTwin("torch.nn:SiLU", lambda m: ()),))
)
register(
    ActivationEntry(
        "tanh", constructors.tanh, label="tanh", odd=True, torch_twins=(TorchTwin("torch.nn:Tanh", lambda m: ()),)
    )
)

# Thresholds in units of the layer's own root mean square.


def _relative(name: str) -> Callable[..., Activation]:
    """From τ and m in units of s to φ."""
    psi: Callable[..., Activation] = getattr(constructors, name)
    return lambda *parameters, through_scale=True: Relative(psi(*parameters), through_scale)


for _name, _psi, _class, _twin in (
    ("relative_relu", "shifted_relu", "RelativeReLU", "relative_crelu"),
    ("relative_soft_threshold", "soft_threshold", "RelativeSoftThreshold", "relative_cst"),
    ("relative_crelu", "crelu", "RelativeCReLU", "relative_relu"),
    ("relative_cst", "cst", "RelativeCST", "relative_soft_threshold"),
):
    _like = entry_of(_psi)
    register(
        ActivationEntry(
            _name,
            _relative(_psi),
            _like.parameters,
            label=f"relative {_like.label}",
            title=f"{_like.title}, relative to the layer's size",
            symbol=f"relative {_like.symbol}",
            odd=_like.odd,
            relative=True,
            threshold_at=_like.threshold_at,
            lowest_sparsity=_like.lowest_sparsity,
            twin=_twin,
            module=f"hush.nn.relative:{_class}",
        )
    )
