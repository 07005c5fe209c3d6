"""TEMPORARY stand-in until the registry's recogniser is merged."""
import math
from dataclasses import dataclass
from torch import nn
from hush.nn.activations import CST, CReLU, FATReLU, ShiftedReLU, SoftThreshold
@dataclass(frozen=True)
class Recognised:
    kernel: int | None
    threshold: float
    clip: float
    inplace: bool
def recognise(m: nn.Module) -> Recognised | None:
    if type(m) is nn.ReLU: return Recognised(0, 0.0, math.inf, m.inplace)
    if type(m) is ShiftedReLU: return Recognised(0, m.threshold, math.inf, False)
    if type(m) is CReLU: return Recognised(0, m.threshold, m.clip, False)
    if type(m) is SoftThreshold: return Recognised(1, m.threshold, math.inf, False)
    if type(m) is CST: return Recognised(1, m.threshold, m.clip, False)
    if type(m) is FATReLU: return Recognised(2, m.threshold, math.inf, False)
    return None
