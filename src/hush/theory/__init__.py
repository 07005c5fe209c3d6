"""The mean-field theory of sparse activations, in float64; NumPy and SciPy only."""

from typing import TYPE_CHECKING

from hush.theory.activations import (
    Activation,
    ActivationEntry,
    Kernel,
    PiecewiseLinear,
    Relative,
    Smooth,
    TorchTwin,
    activation,
    activation_names,
    clipped_names,
    crelu,
    cst,
    entries,
    entry_of,
    fatrelu,
    gelu,
    hardtanh,
    identity,
    leaky_relu,
    odd_threshold,
    one_sided_threshold,
    register,
    relu,
    shifted_relu,
    silu,
    soft_threshold,
    tanh,
    unregister,
)
from hush.theory.block import (
    BRANCH_SCALES,
    Block,
    Chain,
    FeedForward,
    LayerNoise,
    Residual,
    resolve_branch_scale,
)
from hush.theory.chain_summary import FiniteWidth, finite_width
from hush.theory.clip_choice import ClipChoice, choose_clip
from hush.theory.clip_slope import clip_from_slope, slope_and_curvature_of_clip
from hush.theory.covariance import covariance_step, propagate_covariance, uniform_covariance
from hush.theory.dead import dead_units
from hush.theory.design_result import Design, GainLog10
from hush.theory.designing import design
from hush.theory.edge import edge_curve, edge_of_chaos
from hush.theory.fixed_points import (
    FixedPoint,
    FixedPoints,
    Stability,
    correlation_fixed_points,
    variance_fixed_points,
)
from hush.theory.input_correlations import IMAGE_CORRELATIONS, InputCorrelations
from hush.theory.input_norms import IMAGE_NORMS, InputNorms
from hush.theory.jacobian_moments import Jacobian, jacobian, spectrum_row
from hush.theory.layer_bands import Band, Bands, bands
from hush.theory.maps import (
    chi_1,
    correlation_map,
    correlation_map_slope,
    covariance_map,
    covariance_map_slope,
    variance_map,
    variance_map_curvature,
    variance_map_slope,
)
from hush.theory.pair_bands import correlation_band
from hush.theory.phases import Phase, Regime, phase, phase_diagram
from hush.theory.positions import (
    Activate,
    Attention,
    AveragePooling,
    Branch,
    Convolution,
    Dense,
    Embedding,
    Field,
    Gate,
    GlobalAverage,
    Head,
    MaxPooling,
    Normalise,
    Preactivation,
    Stack,
    Step,
    StepPrediction,
    TransformerLayer,
    feed_forward,
    gated_feed_forward,
    participation,
    run_steps,
)
from hush.theory.safe_clip import largest_safe_clip
from hush.theory.separation_curve import Separations, separations
from hush.theory.sparsity_threshold import threshold_from_sparsity
from hush.theory.verdict import Odds

__all__ = [
    "ACTIVATIONS",
    "BRANCH_SCALES",
    "CLIPPED",
    "IMAGE_CORRELATIONS",
    "IMAGE_NORMS",
    "Activate",
    "Activation",
    "ActivationEntry",
    "Attention",
    "AveragePooling",
    "Band",
    "Bands",
    "Block",
    "Branch",
    "Chain",
    "ClipChoice",
    "Convolution",
    "Dense",
    "Design",
    "Embedding",
    "FeedForward",
    "Field",
    "FiniteWidth",
    "FixedPoint",
    "FixedPoints",
    "GainLog10",
    "Gate",
    "GlobalAverage",
    "Head",
    "InputCorrelations",
    "InputNorms",
    "Jacobian",
    "Kernel",
    "LayerNoise",
    "MaxPooling",
    "Normalise",
    "Odds",
    "Phase",
    "PiecewiseLinear",
    "Preactivation",
    "Regime",
    "Relative",
    "Residual",
    "Separations",
    "Smooth",
    "Stability",
    "Stack",
    "Step",
    "StepPrediction",
    "TorchTwin",
    "TransformerLayer",
    "activation",
    "activation_names",
    "bands",
    "chi_1",
    "choose_clip",
    "clip_from_slope",
    "clipped_names",
    "correlation_band",
    "correlation_fixed_points",
    "correlation_map",
    "correlation_map_slope",
    "covariance_map",
    "covariance_map_slope",
    "covariance_step",
    "crelu",
    "cst",
    "dead_units",
    "design",
    "edge_curve",
    "edge_of_chaos",
    "entries",
    "entry_of",
    "fatrelu",
    "feed_forward",
    "finite_width",
    "gated_feed_forward",
    "gelu",
    "hardtanh",
    "identity",
    "jacobian",
    "largest_safe_clip",
    "leaky_relu",
    "odd_threshold",
    "one_sided_threshold",
    "participation",
    "phase",
    "phase_diagram",
    "propagate_covariance",
    "register",
    "relu",
    "resolve_branch_scale",
    "run_steps",
    "separations",
    "shifted_relu",
    "silu",
    "slope_and_curvature_of_clip",
    "soft_threshold",
    "spectrum_row",
    "tanh",
    "threshold_from_sparsity",
    "uniform_covariance",
    "unregister",
    "variance_fixed_points",
    "variance_map",
    "variance_map_curvature",
    "variance_map_slope",
]


# The names that the registry holds at the moment of asking; tuples made here once would miss what users register.
ACTIVATIONS: tuple[str, ...]
CLIPPED: tuple[str, ...]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> tuple[str, ...]:
        if name == "ACTIVATIONS":
            return activation_names()
        if name == "CLIPPED":
            return clipped_names()
        raise AttributeError(f"module 'hush.theory' has no attribute {name!r}")
