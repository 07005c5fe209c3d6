"""Where the figures of one real network may lie at width N: simultaneous bands over its depth.

The chains of `finite_width` give k_l, the variance of layer l given the one before. What a network shows is one draw
of N units at that variance:

    q̂_l = k_l χ²_N/N,    ŝ_l = sparsity(k_l) + noise of variance s(1 − s)/N,    saturation likewise,

and log10 |δ_l|²/|δ_L|² of the gradient. A band holds `coverage` of the *healthy* chains at **every** layer at once, so
that a network which leaves it anywhere is an exception and not one of many chances. Healthy is a chain whose gradient
neither explodes nor vanishes (the calibrated rule of `finite_width`): a design that explodes as predicted still leaves
its band, for the band says where a network that trains would be. Where fewer than one chain in a hundred is healthy,
the best-behaved hundredth stands in.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from hush.theory._gaussian import Array
from hush.theory.activation import PiecewiseLinear
from hush.theory.edge_of_chaos import check_positive
from hush.theory.finite_width import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10, InputNorms, check_size, run_chains
from hush.theory.maps import check_sigmas

__all__ = ["Band", "Bands", "bands", "correlation_band", "dead_units"]

_SAMPLES = 6000
_PAIRS = 256
# Health is judged a few layers beyond the last: a q that runs away at the very end has no layers left to show it.
_BEYOND = 10
# So many Gaussian numbers at most for the pairs: a second of work.
_PAIR_BUDGET = 3e7


@dataclass(frozen=True)
class Band:
    """A lower edge, a median and an upper edge for each layer 1 … depth."""

    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Bands:
    """The bands of every figure, and the odds of the chains they came from.

    Attributes:
        coverage: the share of healthy chains, each one initialisation seen from one input, that stays inside a band
            from the first layer to the last.
        gain_log10: of |δ_l|²/|δ_L|², 0 at the last layer.
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


def bands(
    phi: PiecewiseLinear,
    sigma_w: float,
    sigma_b: float,
    width: int,
    depth: int,
    *,
    q_start: float,
    norms: InputNorms,
    positions: int = 1,
    coverage: float = 0.99,
    samples: int = _SAMPLES,
    seed: int = 0,
) -> Bands:
    """Bands for a network of `depth` layers of `width` units, from inputs of mean square q_start spread as `norms`.

    `positions` is that of `finite_width`: 1 for an MLP, the size of the feature map for a CNN.
    """
    check_sigmas(sigma_w, sigma_b)
    check_positive("q_start", q_start)
    check_size(width, depth)
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage}.")
    variances = (sigma_w**2, sigma_b**2)
    k, beyond = run_chains(phi, *variances, width, depth + _BEYOND, q_start, norms, samples, seed, positions)
    k, gains = k[:depth], beyond[: depth - 1] - beyond[depth - 1]
    worst, total = gains.max(0), gains[0]
    healthy = (beyond.max(0) <= EXPLODING_GAIN_LOG10) & (total >= VANISHING_GAIN_LOG10)
    if healthy.mean() < 0.01:
        badness = np.maximum(beyond.max(0), VANISHING_GAIN_LOG10 - total)
        healthy = badness <= np.quantile(badness, 0.01)
    rng = np.random.default_rng(seed + 1)
    kept = k[:, healthy]
    chi = rng.chisquare(width, kept.shape) / width
    noise = rng.standard_normal((2, *kept.shape)) / np.sqrt(width)
    shares = []
    for share, draw in zip((phi.sparsity(kept), phi.saturation(kept)), noise, strict=True):
        shares.append(np.clip(share + np.sqrt(share * (1.0 - share)) * draw, 0.0, 1.0))
    back = np.vstack([gains[:, healthy], np.zeros(kept.shape[1])])
    return Bands(
        width,
        depth,
        coverage,
        _mapped(simultaneous(np.log(kept * chi), coverage), math.exp),
        _mapped(simultaneous(shares[0], coverage), _share),
        _mapped(simultaneous(shares[1], coverage), _share),
        simultaneous(back, coverage),
        float(np.mean(worst > EXPLODING_GAIN_LOG10)),
        float(np.mean(total < VANISHING_GAIN_LOG10)),
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


def correlation_band(
    phi: PiecewiseLinear,
    sigma_w: float,
    sigma_b: float,
    width: int,
    depth: int,
    *,
    q_start: float,
    correlations: Array,
    coverage: float = 0.99,
    seed: int = 0,
) -> Band:
    """The band of the correlation of two inputs, each pair starting from one of `correlations`; layer by layer, not
    simultaneous: as correlations crowd at 1 their spread changes shape, and no one number scales it.

    The pair (k_a, k_b, c) is again an exact chain: N draws (h_a, h_b) of that covariance, and their averages

        k′ = σ_w² mean φ(h)² + σ_b²,    c′ = σ_w² mean φ(h_a)φ(h_b) + σ_b²,    ρ = c/√(k_a k_b).
    """
    check_sigmas(sigma_w, sigma_b)
    check_size(width, depth)
    pairs = int(np.clip(_PAIR_BUDGET / (2.0 * width * depth), 32, _PAIRS))
    rng = np.random.default_rng(seed)
    rho = np.clip(rng.choice(np.asarray(correlations, dtype=np.float64).ravel(), pairs), -1.0, 1.0)
    k_a = k_b = np.full(pairs, q_start)
    history = np.empty((depth, pairs))
    for layer in range(depth):
        z_a, z_b = rng.standard_normal((2, pairs, width))
        h_a = np.sqrt(k_a)[:, None] * z_a
        h_b = np.sqrt(k_b)[:, None] * (rho[:, None] * z_a + np.sqrt(1.0 - rho**2)[:, None] * z_b)
        # What is measured is the cosine of the two draws, not the ρ they came from; 0 where one has died out.
        norms = np.sqrt((h_a**2).sum(1) * (h_b**2).sum(1))
        history[layer] = np.divide((h_a * h_b).sum(1), norms, out=np.zeros(pairs), where=norms > 0.0)
        x_a, x_b = phi(h_a), phi(h_b)
        k_a, k_b, c = (sigma_w**2 * (x * y).mean(1) + sigma_b**2 for x, y in ((x_a, x_a), (x_b, x_b), (x_a, x_b)))
        scale = np.sqrt(k_a * k_b)
        rho = np.clip(np.divide(c, scale, out=np.zeros(pairs), where=scale > 0.0), -1.0, 1.0)
    tail = 0.5 * (1.0 - coverage)
    return Band(*(tuple(float(v) for v in row) for row in np.quantile(history, (tail, 0.5, 1.0 - tail), axis=1)))


def dead_units(phi: PiecewiseLinear, q: Array, rho: Array, inputs: int) -> Array:
    """P(a unit is 0 for all of `inputs` inputs), whose pre-activations have variance q and pairwise correlation ρ.

        ∫ p(z)^inputs n(z) dz,    p(z) = P(φ(√q(√ρ z + √(1−ρ) ε)) = 0)

    over the part z that the inputs share; negative ρ counts as 0. Elementwise over q and ρ.
    """
    z, weight = np.polynomial.hermite_e.hermegauss(96)
    q, rho = np.asarray(q, dtype=np.float64)[..., None], np.clip(np.asarray(rho, dtype=np.float64), 0.0, 1.0)[..., None]
    centre, spread = np.sqrt(q * rho) * z, np.sqrt(np.maximum(q * (1.0 - rho), 1e-12 * q + 1e-300))
    silent: Array = np.zeros(np.broadcast_shapes(centre.shape, spread.shape))
    for left, right, slope, offset in phi.segments():
        if slope == 0.0 and offset == 0.0:
            silent = silent + ndtr((right - centre) / spread) - ndtr((left - centre) / spread)
    return np.asarray((np.clip(silent, 0.0, 1.0) ** inputs * weight).sum(-1) / weight.sum())
