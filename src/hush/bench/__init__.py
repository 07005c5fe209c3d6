"""Every performance figure the project claims, against peers, as ratios."""

from .arguments import check_arguments
from .machine_limits import Machine, machine
from .measurement import OURS, Measurement, Setting
from .peers import INFERENCE, TRAINING
from .random_networks import depth_for, random_network, random_residual, sparsity_of
from .roofline import Roofline, measure_roofline
from .suites import inference, layer, training
from .trained_network import train_network

__all__ = [
    "INFERENCE",
    "OURS",
    "TRAINING",
    "Machine",
    "Measurement",
    "Roofline",
    "Setting",
    "check_arguments",
    "depth_for",
    "inference",
    "layer",
    "machine",
    "measure_roofline",
    "random_network",
    "random_residual",
    "sparsity_of",
    "train_network",
    "training",
]
