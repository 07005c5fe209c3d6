"""Thousands of chains of finite width at once: the variance k of each layer, and the gain of the gradient behind it.

At width N the next k of a block is an average of N terms, and so is the gain of the gradient; each enters with its
mean, variance and, for k, skewness (`Block.noise`), tabulated over log k. So k is a Markov chain, the gain another one
driven by it, and thousands of them run in milliseconds. Inputs do not all have the same norm: k_1 is drawn from the
spread of |x|²/N of the data.

The loop of `_layers` is written for speed, operation by operation into arrays that are there already: what takes the
time is memory, not arithmetic. The tests keep the plain form as its oracle.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import cast

import numpy as np

from hush.theory._arrays import Array
from hush.theory._checks import check_samples, check_size, check_variance
from hush.theory._normal import ndtri
from hush.theory.block.chain import Chain
from hush.theory.block.protocol import Block
from hush.theory.block.residual import Residual
from hush.theory.chain_draws import REACH, Draws, Single, draw
from hush.theory.input_norms import InputNorms
from hush.theory.unit_run import run_chain_units, run_units, unit_samples

__all__ = ["SAMPLES", "largest_gains", "run_chains"]

SAMPLES = 4000
# Of chains that are run unit by unit, which takes a second for so many; enough for odds of a few in a thousand.
_UNIT_CHAINS = 1500


# The last two results are kept, so that whoever asks for the odds and then for the quantiles pays once.
@lru_cache(maxsize=2)
def run_chains(
    block: Block,
    width: int,
    depth: int,
    q_start: float,
    norms: InputNorms,
    samples: int = SAMPLES,
    seed: int = 0,
) -> tuple[Array, Array]:
    """(k at layers 1 … depth, log10 gain from the last layer to layers 1 … depth − 1); shapes (layers, samples).

    Where the block carries a stream, k is its |x|²/N as it enters blocks 1 … depth. Blocks that remember their units
    are run unit by unit (`unit_run`), and may be fewer than `samples`. Both are read-only.
    """
    check_variance("q_start", q_start)
    check_size(width, depth)
    check_samples(samples, depth)
    if block.keeps_units:
        return _read_only(*_run_units(cast(Residual | Chain, block), width, depth, q_start, norms, samples, seed))
    draws = draw(depth, samples, seed, norms)
    if block.keeps_stream:
        draws = _as_measured(draws, width, seed)
    k, gains = np.empty((depth, samples)), np.empty((depth - 1, samples))
    k[0] = draws.inputs
    for layer, (following, gain) in enumerate(_layers(block, width, q_start, draws)):
        k[layer + 1], gains[layer] = following, gain
    k *= q_start
    # Gains add up from the last layer; np.cumsum along this axis takes many times as long.
    for layer in range(depth - 2, 0, -1):
        gains[layer - 1] += gains[layer]
    return _read_only(k, gains)


def _read_only(k: Array, gains: Array) -> tuple[Array, Array]:
    k.flags.writeable = gains.flags.writeable = False
    return k, gains


def _run_units(
    block: Residual | Chain, width: int, depth: int, q_start: float, norms: InputNorms, samples: int, seed: int
) -> tuple[Array, Array]:
    count = unit_samples(width, depth, samples)
    if isinstance(block, Chain):
        count = min(count, _UNIT_CHAINS)
    # Evenly spread over the inputs' norms, for there may be few of them.
    scores = ndtri((np.random.default_rng((seed, 2)).permutation(count) + 0.5) / count)
    starts = q_start * np.clip(norms.at(scores), 1.0 / REACH, REACH)
    if isinstance(block, Chain):
        return run_chain_units(block, width, depth, starts, seed)
    return run_units(block, width, depth, starts, seed)


def _as_measured(draws: Draws, width: int, seed: int) -> Draws:
    """The first stream as measured: the first layer draws N units of that variance, and the blocks carry those."""
    measured = np.random.default_rng((seed, 2)).chisquare(width, draws.inputs.size) / width
    inputs = np.clip(draws.inputs * measured, 1.0 / REACH, REACH).astype(np.float32)
    return replace(draws, inputs=inputs, smallest=inputs.min(), largest=inputs.max())


def largest_gains(block: Block, width: int, draws: Draws) -> Single:
    """The largest of `run_chains`' gains in each chain, at q_start = 1, without keeping the others."""
    largest, nothing = np.zeros((2, draws.inputs.size), np.float32)
    for _, gain in _layers(block, width, 1.0, draws):
        # Up to this layer: from an earlier one on, or from this alone.
        np.maximum(largest, nothing, out=largest)
        largest += gain
    return largest


def _layers(block: Block, width: int, q_start: float, draws: Draws) -> Iterator[tuple[Single, Single]]:
    """Layer by layer (the next k in units of q_start, log10 of the layer's gain), one number for each chain.

    In single precision, which the noise hides, and in arrays that the layer after overwrites.
    """
    single = np.float32
    depth, samples = len(draws.forward) + 1, draws.inputs.size
    least_k, most_k = block.reachable()
    lowest, highest = single(max(least_k / q_start, 1.0 / REACH)), single(min(most_k / q_start, REACH))
    low, high = np.log(min(lowest, draws.smallest)), np.log(max(highest, draws.largest))
    grid = np.linspace(low, high, max(64, int(40 * (high - low))))
    low, per_cell, to_log10 = single(low), single(1.0 / (grid[1] - grid[0])), single(3.0 / np.log(10.0))
    # An entry's numbers stand side by side: one look-up fetches eight of them, far faster than nine.
    *eight, ninth = _table(block, width, q_start, q_start * np.exp(grid)).astype(single)
    table = np.stack(eight, axis=1)
    found = np.empty((samples, table.shape[1]), single)
    mean, step, spread, skew, gain, gain_step, shared, own = found.T
    part, cell, term, rest, root = np.empty((5, samples), single)
    k = draws.inputs.copy()
    index = np.empty(samples, np.intp)
    # One bound for each chain: NumPy takes the larger of two arrays far faster than of an array and a number.
    floor, ceiling, least = (np.full(samples, bound, single) for bound in (lowest, highest, single(0.05)))
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
        if block.keeps_stream:
            # What is added to the stream is tabulated: over a cell of the table p itself bends, and the error would add
            # up.
            k += np.multiply(part, step, out=term)
        else:
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


def _table(block: Block, width: int, unit: float, k: Array) -> Array:
    """The nine numbers `_layers` looks up, one row each, over k; variances in units of `unit`.

    mean − skew of the next k (less k itself where the block carries its stream), the step of that mean to the next
    entry, the deviation, and skew = deviation × skewness/6; log10 of the mean gain and its step; and with c a third of
    the gain's relative deviation: c split into the part that the next k shares and the part that it does not, and 1 −
    c².
    """
    noise = block.noise(width, k)
    mean, deviation = noise.mean / unit, noise.deviation / unit
    if block.keeps_stream:
        mean = mean - k / unit
    third = np.sqrt(np.minimum(noise.gain_variance, 4.0)) / 3.0
    skew = deviation * np.minimum(noise.skewness, 3.0) / 6.0
    return np.stack(
        [
            mean - skew,
            np.append(np.diff(mean), 0.0),
            deviation,
            skew,
            noise.gain_log10,
            np.append(np.diff(noise.gain_log10), 0.0),
            third * noise.shared,
            third * np.sqrt(1.0 - noise.shared**2),
            1.0 - third**2,
        ]
    )
