"""Every performance figure the project claims, against peers, as ratios."""

from .check import check
from .network import CReLU, depth_for, network, sparsity_of
from .peers import INFERENCE, TRAINING
from .row import OURS, Machine, Row, Setting
from .run import inference, layer, training
from .timing import machine
from .trained import trained

__all__ = [
    "INFERENCE",
    "OURS",
    "TRAINING",
    "CReLU",
    "Machine",
    "Row",
    "Setting",
    "check",
    "depth_for",
    "inference",
    "layer",
    "machine",
    "network",
    "sparsity_of",
    "trained",
    "training",
]
