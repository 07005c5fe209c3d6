"""torch: the sparse activations, ready-made networks, and initialisation on the Edge of Chaos."""

from hush.nn import checkpoint, functional
from hush.nn.activations import CST, CReLU, FATReLU, ShiftedReLU, SoftThreshold, from_design
from hush.nn.init import init_
from hush.nn.models import cnn, mlp
from hush.nn.recognise import Recognised, phi_of, recognise
from hush.nn.report import Drawn, InitReport, LeftAlone

__all__ = [
    "CST",
    "CReLU",
    "Drawn",
    "FATReLU",
    "InitReport",
    "LeftAlone",
    "Recognised",
    "ShiftedReLU",
    "SoftThreshold",
    "checkpoint",
    "cnn",
    "from_design",
    "functional",
    "init_",
    "mlp",
    "phi_of",
    "recognise",
]
