"""Before a peer is timed its result is compared with the reference: whoever computes something else is not timed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .peers import Peer

__all__ = ["relative_error", "tolerance", "verify"]

# A hundred layers in float32 give outputs that differ from float64 by about 1e-5; with weights in bfloat16 by 1e-2 to
# 3e-2 (`hush bench inference`).
_OF_OUTPUT = {"f32": 1e-3, "bf16": 0.1}
# An update may differ by more: where an input lies so close to a kink that rounding decides on which side it falls, φ
# is the same and its slope is not. Among 128 samples through 100 layers there mostly is one: 1e-6 to 3e-2 were seen, in
# plain torch as well as on the engine. A wrong update is wrong by 1.
_OF_UPDATE = {"f32": 0.1, "bf16": 0.3}


def tolerance(work: str, precision: str) -> float:
    """How far a peer's result may be from the reference."""
    return (_OF_OUTPUT if work == "inference" else _OF_UPDATE)[precision]


def relative_error(result: Tensor, reference: Tensor) -> float:
    """|result − reference| / |reference|; infinite where the result has another shape or is not finite."""
    if result.shape != reference.shape:
        return math.inf
    error = float((result.double() - reference).norm() / reference.norm())
    return error if math.isfinite(error) else math.inf


def verify(work: str, peers: Mapping[str, Peer], reference: Tensor) -> dict[str, float]:
    """The error of each peer's result, by name.

    Raises:
        ValueError: if one is further from the reference than its precision explains.
    """
    errors = {}
    for name, peer in peers.items():
        with torch.no_grad():
            error = relative_error(peer.result().detach(), reference)
        allowed = tolerance(work, peer.precision)
        if not error <= allowed:
            raise ValueError(
                f"{name} does not compute what plain torch does: its relative error is {error:.2g}, and "
                f"{peer.precision} explains {allowed:g} at most. It is not timed; leave it out with --peer."
            )
        errors[name] = error
    return errors
