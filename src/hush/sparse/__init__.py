"""Zeros become speed: exact sparse training and inference on the CPU."""

from . import crossover
from .acceleration_report import Report
from .activation import Activation, Kind, activation_of
from .backend import Backend, Program, register_backend
from .converter import accelerate, decelerate, report
from .convolution_functional import act_conv2d
from .cpu import engine_calls, isa
from .freed_memory import keep_freed_memory
from .functional import act_linear, chain, feedforward
from .fused_step import fused_backward, step
from .residual_block import Norm, ResidualBlock
from .residual_functional import residual_chain

__all__ = [
    "Activation",
    "Backend",
    "Kind",
    "Norm",
    "Program",
    "Report",
    "ResidualBlock",
    "accelerate",
    "act_conv2d",
    "act_linear",
    "activation_of",
    "chain",
    "crossover",
    "decelerate",
    "engine_calls",
    "feedforward",
    "fused_backward",
    "isa",
    "keep_freed_memory",
    "register_backend",
    "report",
    "residual_chain",
    "step",
]
