"""Zeros become speed: exact sparse training and inference on the CPU."""

from . import crossover
from ._engine import isa
from .accelerate import Report, accelerate, decelerate, report
from .activation import Activation, Kind, activation_of
from .ops import act_linear, chain

__all__ = [
    "Activation",
    "Kind",
    "Report",
    "accelerate",
    "act_linear",
    "activation_of",
    "chain",
    "crossover",
    "decelerate",
    "isa",
    "report",
]
