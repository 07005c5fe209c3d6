"""Where the statistics of one real network may lie at width N: simultaneous bands over its depth.

The chains of `chain_run` give k_l, the variance of layer l given the one before. What a network shows is one draw
of N units at that variance:

    q̂_l = k_l χ²_N/N,    ŝ_l = sparsity(k_l) + noise of variance s(1 − s)/N,    saturation likewise,

and log10 |δ_l|²/|δ_L|² of the gradient. A band holds `coverage` of the *healthy* chains at **every** layer at once, so
that a network which leaves it anywhere is an exception and not one of many chances. Healthy is a chain whose gradient
neither explodes nor vanishes (`training_rule`): a design that explodes as predicted still leaves
its band, for the band says where a network that trains would be. Where fewer than one chain in a hundred is healthy,
the best-behaved hundredth stands in.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hush.theory._arrays import Array
from hush.theory._checks import check_size
from hush.theory.activations.protocol import Activation
from hush.theory.activations.relative import Relative
from hush.theory.block.choose import block_from
from hush.theory.block.protocol import Block
from hush.theory.block.relative_layer import relative_layer
from hush.theory.chain_run import run_chains
from hush.theory.input_norms import InputNorms
from hush.theory.training_rule import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10

__all__ = ["Band", "Bands", "bands", "simultaneous"]

_SAMPLES = 6000
# Health is judged a few layers beyond the last: a q that runs away at the very end has no layers left to show it.
_BEYOND = 10
# The relative deviation of a q that follows from the stream, of the order of a norm's ε.
_NEARLY = 1e-5


@dataclass(frozen=True)
class Band:
    """A lower edge, a median and an upper edge for each layer 1 … depth."""

    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Bands:
    """The bands of every statistic, and the odds of the chains they came from.

    Attributes:
        coverage: the share of healthy chains, each one initialisation seen from one input, that stays inside a band
            from the first layer to the last.
        gain_log10: of |δ_l|²/|δ_L|², 0 at the last layer.
        stream: of |x|²/N entering each block, where a stream is carried along; layers are then blocks.
    """

    width: int
    depth: int
    coverage: float
    q: Band
    sparsity: Band
    saturation: Band
    gain_log10: Band
    explode: float
    vanish: float
    stream: Band | None = None


def bands(
    phi: Activation | Block,
    sigma_w: float | None = None,
    sigma_b: float | None = None,
    width: int = 0,
    depth: int = 0,
    *,
    q_start: float,
    norms: InputNorms,
    positions: int | None = None,
    coverage: float = 0.99,
    samples: int = _SAMPLES,
    seed: int = 0,
) -> Bands:
    """Bands for a network of `depth` layers of `width` units, from inputs of mean square q_start spread as `norms`.

    The network repeats the plain chain of φ at σ_w and σ_b, or a block. `positions` is that of `finite_width`: 1 for an
    MLP, the size of the feature map for a CNN.
    """
    check_size(width, depth)
    block = block_from(phi, sigma_w, sigma_b, positions)
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage}.")
    k, beyond = run_chains(block, width, depth + _BEYOND, q_start, norms, samples, seed)
    k, gains = k[:depth], beyond[: depth - 1] - beyond[depth - 1]
    worst, total = gains.max(0), gains[0]
    healthy = (beyond.max(0) <= EXPLODING_GAIN_LOG10) & (total >= VANISHING_GAIN_LOG10)
    if healthy.mean() < 0.01:
        badness = np.maximum(beyond.max(0), VANISHING_GAIN_LOG10 - total)
        healthy = badness <= np.quantile(badness, 0.01)
    rng = np.random.default_rng(seed + 1)
    kept = k[:, healthy]
    units = block.preactivation_units(width)
    chi = rng.chisquare(units or width, kept.shape) / (units or width)
    noise = rng.standard_normal((2, *kept.shape)) / np.sqrt(units or width)
    if units is None:
        # Nothing is drawn between the stream and the pre-activation. What is known exactly still moves by a norm's ε.
        chi = 1.0 + _NEARLY * rng.standard_normal(kept.shape)
    shares = []
    # Of thresholds in units of the layer's own size, what the shares have in common with the size does not show.
    knowns = (0.0, 0.0)
    if isinstance(block.phi, Relative):
        layer = relative_layer(block.phi)
        knowns = (layer.silent_known, layer.saturated_known)
    parts = (block.sparsity(kept), block.saturation(kept))
    for share, draw, known in zip(parts, noise, knowns, strict=True):
        spread = np.maximum(share * (1.0 - share) - known, 0.0)
        shares.append(np.clip(share + np.sqrt(spread) * draw, 0.0, 1.0))
    back = np.vstack([gains[:, healthy], np.zeros(kept.shape[1])])
    return Bands(
        width,
        depth,
        coverage,
        _mapped(simultaneous(np.log(block.preactivation_variance(kept) * chi), coverage), math.exp),
        _mapped(simultaneous(shares[0], coverage), _share),
        _mapped(simultaneous(shares[1], coverage), _share),
        simultaneous(back, coverage),
        float(np.mean(worst > EXPLODING_GAIN_LOG10)),
        float(np.mean(total < VANISHING_GAIN_LOG10)),
        _mapped(simultaneous(np.log(kept), coverage), math.exp) if block.keeps_stream else None,
    )


def simultaneous(values: Array, coverage: float) -> Band:
    """[median − c·(median − 10 %), median + c·(90 % − median)] of each layer; c such that `coverage` never leaves it.

    `values` is (layers, chains). Only c is fitted to the chains, so the band holds fresh ones as it holds these.
    """
    low, median, high = np.quantile(values, (0.1, 0.5, 0.9), axis=1)
    down, up = median - low, high - median
    # A layer that does not vary has no width, and nothing leaves it.
    above = values - median[:, None]
    distance = np.maximum(_over(-above, down), _over(above, up))
    c = float(np.quantile(distance.max(0), coverage))
    return Band(*(tuple(float(v) for v in row) for row in (median - c * down, median, median + c * up)))


def _over(distance: Array, width: Array) -> Array:
    """distance/width by layer, 0 where the width is."""
    return distance / np.where(width > 0.0, width, np.inf)[:, None]


def _mapped(band: Band, function: Callable[[float], float]) -> Band:
    return Band(*(tuple(function(v) for v in row) for row in (band.low, band.median, band.high)))


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
