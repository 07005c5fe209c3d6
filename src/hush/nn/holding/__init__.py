"""Sparsity that holds: thresholds that follow the network while it trains, so that the share of zeros stays."""

from hush.nn.holding.hold_report import HeldLayer, HoldReport
from hush.nn.holding.holder import Hold, hold, release
from hush.nn.holding.targets import Ramp, ramp

__all__ = ["HeldLayer", "Hold", "HoldReport", "Ramp", "hold", "ramp", "release"]
