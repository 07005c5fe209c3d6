"""torch: the sparse activations, ready-made networks, and initialisation on the Edge of Chaos."""

from hush.nn import checkpoint, functional
from hush.nn.activations import CST, CReLU, FATReLU, ShiftedReLU, SoftThreshold, act_layer, from_design
from hush.nn.holding import HeldLayer, Hold, HoldReport, Ramp, hold, ramp
from hush.nn.init import init_
from hush.nn.init_report import Drawn, InitReport, LeftAlone
from hush.nn.models import GPT, ResidualMLP, ResNet, cnn, gpt, mlp, residual_mlp, resnet
from hush.nn.recognise import Recognised, phi_of, recognise
from hush.nn.relative import RelativeCReLU, RelativeCST, RelativeReLU, RelativeSoftThreshold
from hush.nn.sparsifying import OutputChange, SparsifiedLayer, SparsifyReport, sparsify
from hush.nn.swap_report import FunctionUse, LeftActivation, Swapped, SwapReport
from hush.nn.swapping import swap_activations
from hush.nn.thresholded_forms import ThresholdedGELU, ThresholdedSiLU

__all__ = [
    "CST",
    "GPT",
    "CReLU",
    "Drawn",
    "FATReLU",
    "FunctionUse",
    "HeldLayer",
    "Hold",
    "HoldReport",
    "InitReport",
    "LeftActivation",
    "LeftAlone",
    "OutputChange",
    "Ramp",
    "Recognised",
    "RelativeCReLU",
    "RelativeCST",
    "RelativeReLU",
    "RelativeSoftThreshold",
    "ResNet",
    "ResidualMLP",
    "ShiftedReLU",
    "SoftThreshold",
    "SparsifiedLayer",
    "SparsifyReport",
    "SwapReport",
    "Swapped",
    "ThresholdedGELU",
    "ThresholdedSiLU",
    "act_layer",
    "checkpoint",
    "cnn",
    "from_design",
    "functional",
    "gpt",
    "hold",
    "init_",
    "mlp",
    "phi_of",
    "ramp",
    "recognise",
    "residual_mlp",
    "resnet",
    "sparsify",
    "swap_activations",
]
