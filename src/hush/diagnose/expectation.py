"""What the walk along a run expects of every activation and every sum, with the band of each figure.

Bands hold 99 % of the networks of these sizes, layer by layer: log-normal about the expected q, with the first-order
noise of finitely many units, and one per cent for what the theory neglects.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hush.diagnose.arguments import Batch
from hush.diagnose.hooks import Wanted
from hush.diagnose.measure import takes_batch_statistics
from hush.diagnose.saturation import count_saturated
from hush.diagnose.walk.along_the_run import walk_model
from hush.diagnose.walk.findings import Restart, Seen, Walk
from hush.diagnose.walk.population import Population
from hush.nn.quiet_run import batch_statistics, quietly
from hush.theory import Activation

__all__ = ["COVERAGE", "Expectation", "Expected", "expect"]

COVERAGE = 0.99
_DEVIATIONS = 2.5758
# Noise is followed to first order. Where a norm divides by next to nothing it outgrows that order, and all that can be
# said of q is its order of magnitude.
_WIDEST = math.log(10.0)
_NEGLECTED = 0.01
# So many inputs run beside the populations; the moments of the inputs are those of all.
_EXAMPLES = 8

_Range = tuple[float, float]


@dataclass(frozen=True)
class Expected:
    """The figures of one activation, or of one sum, and their bands."""

    q: float
    q_band: _Range
    correlation: float
    token_correlation: float | None
    gain_log10: float | None
    gain_log10_band: _Range | None
    sparsity: float = 0.0
    sparsity_band: _Range | None = None
    saturated: float | None = None
    reads: str = ""

    @property
    def gain_spread(self) -> float:
        """The standard deviation of log10 of the gain."""
        return (
            0.0
            if self.gain_log10_band is None
            else (self.gain_log10_band[1] - self.gain_log10_band[0]) / (2.0 * _DEVIATIONS)
        )


@dataclass(frozen=True)
class Expectation:
    """Of a whole model.

    Attributes:
        wanted: the calls that the measurement shall read, so that the two go together.
        layers, stream: None where nothing could be followed to that place.
        restarts: functions without a rule, behind which the prediction starts anew.
    """

    wanted: Wanted
    layers: tuple[Expected | None, ...]
    stream: tuple[Expected | None, ...]
    restarts: tuple[Restart, ...]


def expect(model: nn.Module, arguments: Batch, chunk: int) -> Expectation:
    """Walk along one run of the model on a few of its inputs."""
    batch = min(chunk, arguments.count)
    few = arguments.part(0, _EXAMPLES)
    batched = takes_batch_statistics(model, batch)
    with torch.inference_mode(False), quietly(model), batch_statistics(model) if batched else nullcontext():
        walk = walk_model(model, few.args, few.kwargs, batch, (arguments.args, arguments.kwargs))
    activations = [seen for seen in walk.activations if seen.module or seen.passes_on]
    sums = [seen for seen in walk.sums if seen.passes_on]
    functions = frozenset(seen.number for seen in activations if not seen.module)
    wanted = Wanted(functions, frozenset(seen.number for seen in sums), walk.head)
    return Expectation(
        wanted,
        tuple(_figures(walk, seen, _last(activations)) for seen in activations),
        tuple(_figures(walk, seen, _last(sums)) for seen in sums),
        walk.restarts,
    )


def _last(seen: list[Seen]) -> int | None:
    return next((entry.before.node for entry in reversed(seen) if entry.before is not None), None)


def _figures(walk: Walk, seen: Seen, last: int | None) -> Expected | None:
    h = seen.before
    if h is None or not math.isfinite(h.variance):
        return None
    q = h.variance
    spread = min(_DEVIATIONS * math.sqrt(walk.context.spread(h) + _NEGLECTED**2), _WIDEST)
    low, high = q * math.exp(-spread), q * math.exp(spread)
    gain = walk.gradients.gain_log10(h.node, last) if last is not None else None
    margin = None if gain is None else _DEVIATIONS * math.hypot(gain[1], 0.02)
    figures = Expected(
        q=q,
        q_band=(low, high),
        correlation=_cosine(h, 2),
        token_correlation=_cosine(h, 1) if h.positions > 1 else None,
        gain_log10=None if gain is None else gain[0],
        gain_log10_band=None if gain is None or margin is None else (gain[0] - margin, gain[0] + margin),
        reads=walk.reads(h.node),
    )
    return figures if seen.apply is None else _with_shares(figures, h, seen.apply, seen.phi)


def _with_shares(
    figures: Expected, h: Population, apply: Callable[[Tensor], Tensor], phi: Activation | None
) -> Expected:
    """The share of zeros, at the expected q and at the edges of its band, and of values on a plateau."""
    with torch.no_grad():
        shares = []
        for edge in (figures.q, *figures.q_band):
            factor = math.sqrt(edge / figures.q) if figures.q > 0.0 else 1.0
            shares.append(float((apply(h.values[0] * factor) == 0.0).double().mean()))
        x = apply(h.values[0].clone())
    saturated = float(count_saturated(phi, x, -1)) / x.numel()
    share = shares[0]
    noise = _DEVIATIONS * math.sqrt(share * (1.0 - share) / max(1, h.units)) / (2.0 if h.positions > 4 else 1.0)
    band = (max(0.0, min(shares) - noise), min(1.0, max(shares) + noise))
    fields: dict[str, Any] = {**vars(figures), "sparsity": share, "sparsity_band": band, "saturated": saturated}
    return Expected(**fields)


def _cosine(h: Population, place: int) -> float:
    own = float((h.values[0].square().mean() * h.values[place].square().mean()).sqrt())
    return float((h.values[0] * h.values[place]).mean()) / own if own > 0.0 else 0.0
