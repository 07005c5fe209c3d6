"""Before a peer is timed its result is compared with the reference: whoever computes something else is not timed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .peers import Peer

__all__ = ["TOLERANCE", "relative_error", "verify"]

# A hundred layers in float32 differ from float64 by about 1e-5, and by more where an input lies so close to a kink that
# rounding decides on which side it falls; with weights in bfloat16 by 1e-2 to 3e-2 (`hush bench inference`).
TOLERANCE = {"f32": 1e-3, "bf16": 0.1}


def relative_error(result: Tensor, reference: Tensor) -> float:
    """|result − reference| / |reference|; infinite where the result has another shape or is not finite."""
    if result.shape != reference.shape:
        return math.inf
    error = float((result.double() - reference).norm() / reference.norm())
    return error if math.isfinite(error) else math.inf


def verify(peers: Mapping[str, Peer], reference: Tensor) -> dict[str, float]:
    """The error of each peer's result, by name.

    Raises:
        ValueError: if one is further from the reference than its precision explains.
    """
    errors = {}
    for name, peer in peers.items():
        with torch.no_grad():
            error = relative_error(peer.result().detach(), reference)
        allowed = TOLERANCE[peer.precision]
        if not error <= allowed:
            raise ValueError(
                f"{name} does not compute what plain torch does: its relative error is {error:.2g}, and "
                f"{peer.precision} explains {allowed:g} at most. It is not timed; leave it out with --peer."
            )
        errors[name] = error
    return errors
