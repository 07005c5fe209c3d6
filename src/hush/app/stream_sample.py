"""A few hundred networks on a residual stream, few enough for a page that follows a slider.

`hush.design` runs more of them and takes a second or more. Here the odds are shares of fewer networks; pairs of inputs
are run at a modest width, and their scatter, which goes with 1/√N, is brought to the width asked for.
"""

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from hush.app.curve import Array
from hush.theory import IMAGE_NORMS, Chain, Design, GainLog10
from hush.theory._normal import ndtr
from hush.theory.chain_run import run_chains
from hush.theory.pair_bands import run_pairs
from hush.theory.stream_designing import sparsity_lost
from hush.theory.stream_verdict import verdict_on_stream
from hush.theory.training_rule import (
    DISTINGUISHABLE_LOG10,
    EXPLODING_BLOCK_GAIN_LOG10,
    TYPICAL_CORRELATION,
    judge_gains,
)
from hush.theory.verdict import Odds

__all__ = ["StreamSample", "run_sample"]

# So many (unit, block) pairs in all, a tenth of a second of work, but at least so many networks.
_BUDGET = 1.2e6
_FEWEST, _MOST = 40, 400
# Where p alone is a chain, as behind hidden units, thousands cost next to nothing.
_CHAINS = 2000
_PAIRS, _PAIR_WIDTH = 16, 200


@dataclass(frozen=True)
class StreamSample:
    """What the networks did.

    Attributes:
        stream: p after 0 … depth blocks, (depth + 1, networks).
        gains: log10 |δ_l|²/|δ_L|² after 0 … depth − 1 blocks, (depth, networks).
        cosines: of two inputs after 0 … depth blocks, (depth + 1, pairs).
        lost: the share of networks with some layer's sparsity away from the design's.
    """

    stream: Array
    gains: Array
    cosines: Array
    lost: float

    def judged(self, made: Design) -> Design:
        """The design with the odds of this sample, and its verdict in words."""
        outcome = judge_gains(self.gains, EXPLODING_BLOCK_GAIN_LOG10)
        levels = outcome.gain_log10
        apart = np.log10(1.0 - self.cosines[-1])
        # Of a few pairs the share below a bound is coarse; the logarithm is nearly Gaussian.
        below = float(ndtr((DISTINGUISHABLE_LOG10 - np.mean(apart)) / max(float(np.std(apart)), 1e-9)))
        judged = replace(
            made,
            gain_log10=GainLog10(levels[0.1], levels[0.5], levels[0.9]),
            odds=Odds(outcome.explode, outcome.vanish, below, self.lost),
            stream_end=float(np.median(self.stream[-1])),
            separation=float(10.0 ** np.median(apart)),
        )
        return replace(judged, verdict=verdict_on_stream(judged))


def run_sample(made: Design, width: int, depth: int) -> StreamSample:
    """Run networks of this design, and pairs of inputs through others."""
    block, start = made.block(), made.input_variance
    assert not isinstance(block, Chain)  # a chain has a page of its own
    count = _CHAINS
    if block.keeps_units:
        count = int(np.clip(_BUDGET / (width * depth), _FEWEST, _MOST))
    stream, gains = run_chains(block, width, depth + 1, start, IMAGE_NORMS, count)
    lost = 0.0
    if made.norm is None and made.sparsity > 0.0:
        lost = sparsity_lost(made, block, width, depth, IMAGE_NORMS, min(count, _MOST))
    return StreamSample(stream, gains, _cosines(made, width, depth), lost)


def _cosines(made: Design, width: int, depth: int) -> Array:
    narrow = min(width, _PAIR_WIDTH)
    found = run_pairs(made.block(), narrow, depth + 1, made.input_variance, [TYPICAL_CORRELATION], at_most=_PAIRS)
    # 1 − ρ shrinks over many decades and stays positive: its logarithm is what scatters evenly.
    apart = np.log(np.maximum(1.0 - found, 1e-15))
    middle = np.median(apart, axis=1, keepdims=True)
    return np.asarray(1.0 - np.exp(middle + sqrt(narrow / width) * (apart - middle)))
