"""How the variance and the gradient wander at width N and depth L: will it train?

Given the layer before, the pre-activations of a layer are exactly i.i.d. N(0, k), and the next k is an average of N
terms. So k is a Markov chain, and the gradient's gain another one driven by it:

    k_{l+1} = σ_w² (1/N) Σ_j φ(h_j)² + σ_b²          mean V(k_l), variance σ_w⁴ Var[φ²]/N
    |δ_l|²/|δ_{l+1}|² = σ_w² (1/N) Σ_j φ′(h_j)² g_j²  mean χ₁(k_l), relative variance (3μ₂/μ₁² − 1)/N

with h_j ~ N(0, k_l) the same in both (so the two are correlated) and g_j ~ N(0, 1). The backward pass meets the very
weights of the forward pass: along x = φ(h_l) the next layer's h is known, and the units that pass a gradient are those
with large h, which raises the gain by a relative u k_w (H − k)/(N k² μ₁), where u = E[φ²φ′²]/E[φ²], k_w = k − σ_b²
and H = E[x²φ′²]/E[φ′²]. Each average enters with its mean, variance and, for k, skewness, tabulated over log k;
thousands of chains then run in milliseconds. Inputs do not all have the same norm: k_1 is drawn from the spread of
|x|²/N of the data.

The rule, calibrated on the paper's tables (docs/theory.md shows every row): a gradient *explodes* when its gain
|δ_l|²/|δ_L|² exceeds 1000 at some layer, that is when its norm grows thirtyfold; a network does not train when that
happens to more than one in ten pairs of initialisation and input.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from hush.theory._bracketed_root import bracketed_root
from hush.theory._gaussian import Array
from hush.theory.activation import PiecewiseLinear
from hush.theory.edge_of_chaos import (
    activation,
    check_positive,
    clip_from_slope,
    edge_of_chaos,
    threshold_from_sparsity,
)
from hush.theory.maps import check_sigmas

__all__ = [
    "EXPLODING_GAIN_LOG10",
    "IMAGE_NORMS",
    "TRAINABLE_ODDS",
    "VANISHING_GAIN_LOG10",
    "FiniteWidth",
    "InputNorms",
    "finite_width",
    "largest_safe_clip",
]

# The calibrated rule. That of vanishing is a convention: no row of the paper's tables failed that way.
EXPLODING_GAIN_LOG10 = 3.0
VANISHING_GAIN_LOG10 = -6.0
TRAINABLE_ODDS = 0.1

_SAMPLES = 4000
_LEVELS = (0.05, 0.1, 0.5, 0.9, 0.95)
# Beyond this factor of q* on either side the tables stop; what gets there has exploded or died out.
_REACH = 1e8
_SMALLEST_CLIP, _LARGEST_CLIP = 0.05, 5.0
# Between the clips tried first, in log m.
_STEP = 0.3
# A chain that explodes at a clip comes within this many decades of it at any clip up to a step larger.
_MARGIN = 1.0


@dataclass(frozen=True)
class InputNorms:
    """The spread of |x|²/N over the inputs, as quantiles relative to their mean square; log-linear between them."""

    levels: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        levels, values = np.asarray(self.levels), np.asarray(self.values)
        if levels.shape != values.shape or levels.ndim != 1 or levels.size == 0:
            raise ValueError(f"levels and values must be equally long, got {levels.size} and {values.size}.")
        if not (np.all((levels > 0) & (levels < 1)) and np.all(np.diff(levels) > 0)):
            raise ValueError(f"levels must increase strictly within (0, 1), got {self.levels}.")
        if not (np.all(np.isfinite(values) & (values > 0)) and np.all(np.diff(values) >= 0)):
            raise ValueError(f"values must be positive and must not decrease, got {self.values}.")

    @classmethod
    def from_samples(cls, squares: ArrayLike) -> "InputNorms":
        """From measured |x|²/N of some inputs, taken relative to their mean."""
        squares = np.asarray(squares, dtype=np.float64).ravel()
        if squares.size == 0 or not np.all(np.isfinite(squares) & (squares > 0)):
            raise ValueError("the measured |x|²/N must be positive and finite, and there must be at least one.")
        levels = tuple(float(level) for level in np.linspace(0.005, 0.995, 100))
        return cls(levels, tuple(float(v) for v in np.quantile(squares / squares.mean(), levels)))

    def at(self, scores: Array) -> Array:
        """The quantiles at standard normal scores, extrapolated log-linearly beyond the outermost levels."""
        knots, logs = ndtri(np.asarray(self.levels)), np.log(np.asarray(self.values))
        if knots.size == 1:
            return np.full(scores.shape, self.values[0])
        slopes = np.diff(logs) / np.diff(knots)
        cell = np.clip(np.searchsorted(knots, scores) - 1, 0, knots.size - 2)
        return np.exp(logs[cell] + slopes[cell] * (scores - knots[cell]))


# MNIST standardised over the data set: |x|²/784 of single images.
IMAGE_NORMS = InputNorms((0.01, 0.1, 0.5, 0.9, 0.99), (0.44, 0.64, 0.97, 1.40, 1.90))


@dataclass(frozen=True)
class FiniteWidth:
    """What the chains did at this width and depth.

    Attributes:
        q_quantiles: for each level the quantile of q at layers 1 … depth; q = Σ_j h_j²/N is what one measures in a
            network, k and the sampling noise of N units.
        gain_quantiles: for each level the quantile of log10 |δ_l|²/|δ_L|² at layers 1 … depth; 0 at the last.
        gain_log10: quantiles of log10 of the end-to-end gain |δ_1|²/|δ_L|², by level.
        explode, vanish: the odds over initialisations and inputs.
    """

    width: int
    depth: int
    q_quantiles: dict[float, tuple[float, ...]]
    gain_quantiles: dict[float, tuple[float, ...]]
    gain_log10: dict[float, float]
    explode: float
    vanish: float

    @property
    def trains(self) -> bool:
        """Whether the calibrated rule lets it train."""
        return self.explode <= TRAINABLE_ODDS and self.vanish <= TRAINABLE_ODDS


@dataclass(frozen=True)
class _Draws:
    """What is random about the chains, one column each.

    Attributes:
        inputs: k_1 in units of q_start.
        forward, backward: the noise of k at each layer, and that of the gain.
        smallest, largest: of the inputs of all chains, also where only some are kept.
    """

    inputs: Any
    forward: Any
    backward: Any
    smallest: Any
    largest: Any

    def only(self, chosen: Any) -> "_Draws":
        """Some of the chains; they run as they would among all."""
        # Not [:, chosen], which lays the layers out across memory.
        forward, backward = (noise.compress(chosen, axis=1) for noise in (self.forward, self.backward))
        return replace(self, inputs=self.inputs[chosen], forward=forward, backward=backward)


def finite_width(
    phi: PiecewiseLinear,
    sigma_w: float,
    sigma_b: float,
    width: int,
    depth: int,
    *,
    q_start: float = 1.0,
    norms: InputNorms = IMAGE_NORMS,
    positions: int = 1,
    samples: int = _SAMPLES,
    seed: int = 0,
) -> FiniteWidth:
    """Run the chains of a network of `depth` layers of `width` units, from inputs of mean square q_start.

    The first layer preserves the input's variance (paper, appendix D), so k_1 = q_start × a draw from `norms`. In a CNN
    the gradient's norm is a sum over `positions` too, which evens out g_j²: (1 + 2/positions)μ₂/μ₁² − 1 takes the place
    of 3μ₂/μ₁² − 1. The q of the positions move together (their correlation goes to 1), so k keeps its noise.
    """
    check_sigmas(sigma_w, sigma_b)
    check_positive("q_start", q_start)
    check_size(width, depth)
    chains = run_chains(phi, sigma_w**2, sigma_b**2, width, depth, q_start, norms, samples, seed, positions)
    return summarise(width, *chains, seed)


def summarise(width: int, k: Array, gains: Array, seed: int = 0) -> FiniteWidth:
    """The quantiles and odds of `run_chains`' (k, gains) at this width."""
    depth, samples = k.shape
    # Single precision sorts twice as fast; relative to the first q, whatever the unit, it does not run over.
    unit = float(np.median(k[0]))
    q = _layer_quantiles((k / unit).astype(np.float32) * _sampling_noise(width, depth, samples, seed), unit)
    back = _layer_quantiles(np.vstack([gains, np.zeros(samples)]).astype(np.float32))
    return FiniteWidth(width, depth, q, back, *outcome(gains))


def _layer_quantiles(values: Any, unit: float = 1.0) -> dict[float, tuple[float, ...]]:
    """For each level the quantile over the samples of each layer, of values in this unit."""
    # Sorting everything is several times as fast as np.quantile's partitioning.
    ordered = np.sort(values, axis=1)
    quantiles = {}
    for level in _LEVELS:
        place = level * (values.shape[1] - 1)
        low, part = int(place), place % 1.0
        below, above = (ordered[:, i].astype(np.float64) for i in (low, min(low + 1, values.shape[1] - 1)))
        quantiles[level] = tuple((unit * (below + part * (above - below))).tolist())
    return quantiles


def outcome(gains: Array) -> tuple[dict[float, float], float, float]:
    """(quantiles of the end-to-end log10 gain by level, odds to explode, odds to vanish) of `run_chains`' gains."""
    total = gains[0]
    return (
        {level: float(v) for level, v in zip(_LEVELS, np.quantile(total, _LEVELS), strict=True)},
        float(np.mean(gains.max(0) > EXPLODING_GAIN_LOG10)),
        float(np.mean(total < VANISHING_GAIN_LOG10)),
    )


def largest_safe_clip(
    name: str,
    sparsity: float,
    width: int,
    depth: int,
    odds: float = 0.01,
    *,
    q_star: float = 1.0,
    norms: InputNorms = IMAGE_NORMS,
) -> float:
    """The largest m at which at most `odds` of initialisations and inputs explode on the Edge of Chaos.

    A larger clip lets more gradient through; a smaller one holds q more firmly (paper, section 3.1, which leaves the
    bound open). At most 5√q*: so far out a clip no longer does anything.

    Raises:
        ValueError: if no clip is that safe, because the width is too small for the depth.
    """
    if not 0.0 < odds < 1.0:
        raise ValueError(f"odds must lie strictly between 0 and 1, got {odds}.")
    check_size(width, depth)
    # Scale is free: only s and m/√q* matter, so the search runs at q* = 1.
    threshold = threshold_from_sparsity(name, sparsity)
    everyone = _draws(depth, _SAMPLES, 0, norms)
    # By log m, the largest log10 gain of each chain.
    tried: dict[float, Array] = {}

    def risk(log_clip: float, draws: _Draws = everyone) -> float:
        """log(odds at this clip/odds allowed); half a count keeps it finite."""
        if log_clip not in tried:
            phi = activation(name, threshold, float(np.exp(log_clip)))
            tried[log_clip] = _largest_gain(phi, *edge_of_chaos(phi, 1.0), width, draws)
        count = np.sum(tried[log_clip] > EXPLODING_GAIN_LOG10)
        return float(np.log((count + 0.5) / (odds * _SAMPLES + 0.5)))

    # From V′ = 0.75 upwards while it is safe, downwards while it is not. Far down the odds rise again, because few
    # units are left to pass a gradient: where nothing is safe on the way down, no clip is.
    safe = float(np.log(clip_from_slope(name, threshold, 0.75)))
    smallest, largest = np.log(_SMALLEST_CLIP), np.log(_LARGEST_CLIP)
    unsafe = None
    while risk(safe) > 0.0:
        safe, unsafe = safe - _STEP, safe
        if safe < smallest:
            raise ValueError(
                f"no clip keeps the odds of exploding gradients within {odds:g} for {name} at sparsity {sparsity:g}, "
                f"width {width} and depth {depth}; take a wider or shallower network, or less sparsity."
            )
    while unsafe is None and safe < largest:
        above = min(safe + _STEP, largest)
        safe, unsafe = (above, None) if risk(above) <= 0.0 else (safe, above)
    if unsafe is not None:
        # Only the chains that come close to exploding at the larger clip can explode below it.
        close = everyone.only(tried[unsafe] > EXPLODING_GAIN_LOG10 - _MARGIN)
        bracketed_root(lambda log_clip: risk(log_clip, close), safe, unsafe, xtol=5e-3)
    # The search may end on either side: take the largest clip that was seen to be safe.
    return float(np.sqrt(q_star) * np.exp(max(log_clip for log_clip in tried if risk(log_clip) <= 0.0)))


def check_size(width: int, depth: int) -> None:
    """Raise a ValueError unless width and depth are whole numbers a network can have."""
    for name, value, least in (("width", width, 2), ("depth", depth, 2)):
        if int(value) != value or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value}.")


@lru_cache(maxsize=2)
def run_chains(
    phi: PiecewiseLinear,
    w2: float,
    b2: float,
    width: int,
    depth: int,
    q_start: float,
    norms: InputNorms,
    samples: int = _SAMPLES,
    seed: int = 0,
    positions: int = 1,
) -> tuple[Array, Array]:
    """(k at layers 1 … depth, log10 gain from the last layer to layers 1 … depth − 1); shapes (layers, samples).

    The last two results are kept, so that whoever asks for the odds and then for the bands pays once; they are
    read-only for that reason.
    """
    draws = _draws(depth, samples, seed, norms)
    k, gains = np.empty((depth, samples)), np.empty((depth - 1, samples))
    k[0] = draws.inputs
    for layer, (following, gain) in enumerate(_layers(phi, w2, b2, width, q_start, draws, positions)):
        k[layer + 1], gains[layer] = following, gain
    k *= q_start
    # To the last layer; np.cumsum along this axis takes many times as long.
    for layer in range(depth - 2, 0, -1):
        gains[layer - 1] += gains[layer]
    k.flags.writeable = gains.flags.writeable = False
    return k, gains


def _largest_gain(phi: PiecewiseLinear, w2: float, b2: float, width: int, draws: _Draws) -> Any:
    """The largest of `run_chains`' gains in each chain, without the others, at q_start = 1."""
    largest, nothing = np.zeros((2, draws.inputs.size), np.float32)
    for _, gain in _layers(phi, w2, b2, width, 1.0, draws):
        # Up to this layer: from an earlier one on, or from this alone.
        np.maximum(largest, nothing, out=largest)
        largest += gain
    return largest


def _layers(
    phi: PiecewiseLinear, w2: float, b2: float, width: int, q_start: float, draws: _Draws, positions: int = 1
) -> Iterator[tuple[Any, Any]]:
    """Layer by layer (the next k in units of q_start, log10 of the layer's gain), one figure for each chain.

    In single precision, and in arrays that the layer after overwrites.
    """
    # In units of q_start, so that single precision serves: it is several times as fast, and the noise hides it.
    single = np.float32
    depth, samples = len(draws.forward) + 1, draws.inputs.size
    lowest = single(max(b2 / q_start, 1.0 / _REACH))
    highest = single(min((w2 * phi.bound() ** 2 + b2) / q_start, _REACH))
    low, high = np.log(min(lowest, draws.smallest)), np.log(max(highest, draws.largest))
    grid = np.linspace(low, high, max(64, int(40 * (high - low))))
    low, per_cell, to_log10 = single(low), single(1.0 / (grid[1] - grid[0])), single(3.0 / np.log(10.0))
    # An entry's figures side by side: one look-up fetches them all, or rather eight, which are fetched far faster.
    *eight, ninth = _tables(phi, w2, b2, width, q_start * np.exp(grid), positions, q_start).astype(single)
    table = np.stack(eight, axis=1)
    found = np.empty((samples, table.shape[1]), single)
    mean, step, spread, skew, gain, gain_step, shared, own = found.T
    part, cell, term, rest, root = np.empty((5, samples), single)
    k = draws.inputs.copy()
    index = np.empty(samples, np.intp)
    # One bound for each chain: NumPy takes the larger of two arrays far faster than of an array and a number.
    floor, ceiling, least = (np.full(samples, bound, single) for bound in (lowest, highest, 0.05))
    # In place, operation by operation: what takes the time is memory, not arithmetic.
    for layer in range(depth - 1):
        z = draws.forward[layer]
        np.log(k, out=part)
        part -= low
        part *= per_cell
        # k lies within the table but for rounding: just below its first entry this is 0 too, and its last has no step.
        np.trunc(part, out=cell)
        part -= cell
        index[:] = cell
        table.take(index, axis=0, out=found, mode="clip")
        ninth.take(index, out=rest, mode="clip")
        # The means are interpolated; of the noise the nearest entry, 2.5 % away at most, is as good.
        # Cornish–Fisher to third order, an average of N skewed terms: part·step + mean − skew + (spread + skew·z)·z.
        np.multiply(part, step, out=k)
        k += mean
        np.multiply(skew, z, out=term)
        term += spread
        k += np.multiply(term, z, out=term)
        np.minimum(np.maximum(k, floor, out=k), ceiling, out=k)
        # A sum of a few active squares is like a gamma variable: Wilson–Hilferty, with the smallest kept positive.
        np.multiply(shared, z, out=root)
        root += rest
        root += np.multiply(own, draws.backward[layer], out=term)
        np.log(np.maximum(root, least, out=root), out=root)
        root *= to_log10
        part *= gain_step
        part += gain
        root += part
        yield k, root


def _tables(phi: PiecewiseLinear, w2: float, b2: float, width: int, k: Array, positions: int, unit: float) -> Array:
    """Over k, one row each: mean − skew of the next k, the step of its mean to the next entry, its deviation, its skew,
    which is deviation × skewness/6; mean log10 gain of a layer, its step, and with c a third of the gain's relative
    deviation: c split into the part the next k shares and the part it does not, and 1 − c². k is in units of `unit`."""
    sixth, fourth, second = (phi.moment(power, k) for power in (6, 4, 2))  # the highest first: it has the others in it
    mu_1, mu_2 = phi.slope_moment(1, k), phi.slope_moment(2, k)
    fourth_g = 1.0 + 2.0 / positions  # E[g⁴] of a single position, 1 of very many
    tiny = np.finfo(np.float64).tiny
    # A φ that is silent or constant at this k has no spread and no gradient.
    variance = np.maximum(fourth - second**2, 1e-13 * fourth + tiny)
    skewness = np.maximum(sixth - 3.0 * fourth * second + 2.0 * second**3, 0.0) / variance / np.sqrt(variance)
    alive = mu_1 > 1e-12
    safe_mu = np.where(alive, mu_1, 1.0)
    relative = np.where(alive, (fourth_g * mu_2 / safe_mu**2 - 1.0) / width, 0.0)
    both = phi.square_slope_moment(k)
    # What the weights' memory of the forward pass adds to the gain; see the module's docstring.
    further_out = np.where(alive, phi.input_slope_moment(k) / safe_mu, k) - k
    # In a CNN only the mean of the gradient over the positions meets the x that they share.
    forward_share = both / np.maximum(second, tiny) * (1.0 - b2 / np.maximum(k, b2 + tiny))
    memory = forward_share * further_out / (width * positions * k * safe_mu)
    covariance = both - second * mu_1
    shared = np.clip(covariance / np.sqrt(variance * np.maximum(fourth_g * mu_2 - mu_1**2, tiny) + tiny), -1.0, 1.0)
    shared = np.where(alive, shared, 0.0)
    mean, deviation = (w2 * second + b2) / unit, w2 * np.sqrt(variance / width) / unit
    gain = np.log10(w2 * np.maximum(mu_1, 1e-12)) + np.log10(1.0 + np.clip(memory, -0.5, 2.0))
    third = np.sqrt(np.minimum(relative, 4.0)) / 3.0
    skew = deviation * np.minimum(skewness / np.sqrt(width), 3.0) / 6.0
    rows = (
        mean - skew,
        np.append(np.diff(mean), 0.0),
        deviation,
        skew,
        gain,
        np.append(np.diff(gain), 0.0),
        third * shared,
        third * np.sqrt(1.0 - shared**2),
        1.0 - third**2,
    )
    return np.stack(rows)


@lru_cache(maxsize=2)
def _sampling_noise(width: int, depth: int, samples: int, seed: int) -> Any:
    """Draws of χ²_N/N, by the Wilson–Hilferty cube; in single precision, as the chains are."""
    spread = 2.0 / (9.0 * width)
    normals = _stream((seed, 1), np.float32).first(depth * samples).reshape(depth, samples)
    root = normals * np.float32(np.sqrt(spread))
    root += np.float32(1.0 - spread)
    np.maximum(root, np.float32(0.0), out=root)
    return root * root * root


@lru_cache(maxsize=4)
def _draws(depth: int, samples: int, seed: int, norms: InputNorms) -> _Draws:
    """The same for every φ."""
    scores = np.random.default_rng(seed).standard_normal(samples)
    inputs = np.clip(norms.at(scores), 1.0 / _REACH, _REACH).astype(np.float32)
    # The scores again, then the noise.
    noise = _stream((seed,), np.float64).first((2 * depth - 1) * samples)[samples:]
    forward, backward = noise.reshape(2, depth - 1, samples)
    return _Draws(inputs, forward, backward, inputs.min(), inputs.max())


class _Stream:
    """A generator's normal draws, in single precision. They are kept: one layer more costs one layer."""

    def __init__(self, seed: tuple[int, ...], dtype: Any) -> None:
        self._generator, self._dtype = np.random.default_rng(seed), dtype
        self._drawn = np.empty(0, np.float32)
        self._lock = Lock()

    def first(self, count: int) -> Any:
        with self._lock:
            missing = count - self._drawn.size
            if missing > 0:
                more = self._generator.standard_normal(missing, self._dtype).astype(np.float32)
                self._drawn = np.concatenate([self._drawn, more])
                self._drawn.flags.writeable = False
            return self._drawn[:count]


# By seed; the precision they are drawn in is part of which numbers they are.
_stream = lru_cache(maxsize=2)(_Stream)
