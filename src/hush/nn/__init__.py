"""torch: the sparse activations, ready-made networks, and initialisation on the Edge of Chaos."""

from hush.nn import checkpoint, functional
from hush.nn.activations import CST, CReLU, FATReLU, ShiftedReLU, SoftThreshold, from_design
from hush.nn.init import init_
from hush.nn.init_report import Drawn, InitReport, LeftAlone
from hush.nn.models import GPT, ResidualMLP, ResNet, cnn, draw_by_role_, gpt, mlp, residual_mlp, resnet
from hush.nn.recognise import Recognised, phi_of, recognise

__all__ = [
    "CST",
    "GPT",
    "CReLU",
    "Drawn",
    "FATReLU",
    "InitReport",
    "LeftAlone",
    "Recognised",
    "ResNet",
    "ResidualMLP",
    "ShiftedReLU",
    "SoftThreshold",
    "checkpoint",
    "cnn",
    "draw_by_role_",
    "from_design",
    "functional",
    "gpt",
    "init_",
    "mlp",
    "phi_of",
    "recognise",
    "residual_mlp",
    "resnet",
]
