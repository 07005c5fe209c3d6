"""What tells two inputs apart, followed through thousands of chains of finite width: 1 − ρ at every layer.

Two inputs of variance about k and correlation ρ differ by d = h_b − h_a, of variance 2ku, u = 1 − ρ. A layer of N units
makes of it

    2k′u′ = σ_w² (1/N) Σ_j (φ(h_bj) − φ(h_aj))²,

whose mean is 2k(1 − R_k(ρ)), R_k the correlation map at k. As long as both inputs pass through the same units the sum
is σ_w² (1/N) Σ_j φ′(h_j)² d_j²: word for word the gain of a gradient, with the same noise, (3μ₂/μ₁² − 1)/N, of which
the next k has the same share. And over many layers |Jv|² of a direction v that goes forward is distributed as
|Jᵀδ|² of a gradient δ that goes back. So the chains of `chain_run` carry it already: **what tells inputs apart goes
forward as the gradient goes back**, but for what the kinks take from it, (1 − R_k(ρ))/((1 − ρ)χ₁) = 1 − O(√u).

A walk of that variance has a median that falls behind its mean by half the variance, e^(−L(3/μ₁ − 1)/2N) over L layers:
no infinitely wide theory shows it, and it is what makes inputs indistinguishable in deep and sparse networks.

Two corrections for the first layers. Inputs that are far apart make the sum more even than d_j² does (`_evenness`). And
where they start with different norms, what lies along h goes from κ = (k_b − k_a)/2 to V′κ, and turns into something
across h by (χ₁H/k − V′²)κ²/k, H = E[h²φ′²]/E[φ′²].
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hush.theory._arrays import Array
from hush.theory.activations.relative import Relative
from hush.theory.block.chain import Chain
from hush.theory.chain_run import SAMPLES, run_chains
from hush.theory.input_correlations import InputCorrelations
from hush.theory.input_norms import InputNorms

__all__ = ["PAIRS", "run_separations"]

# So many of the chains get a second input.
PAIRS = 1000
# Entries of the tables over log k and over u^(1/4), in which the maps are smooth down to u = 0.
_VARIANCES, _SEPARATIONS = 8, 24
_FIRST, _LAST = 1e-6**0.25, 1.999**0.25
_LEAST, _MOST = 1e-300, 1.999
# Nodes for the difference and points for the sum of two inputs: their spread is needed to a few per cent only.
_NODES, _POINTS = 12, 160
# Below this u the points stand too far apart to see the units that only one of two inputs switches on.
_RESOLVED = 0.008
_TO_LOG = math.log(10.0)


# The last two results are kept, so that whoever asks for the odds and then for the curve pays once.
@lru_cache(maxsize=2)
def run_separations(
    chain: Chain,
    width: int,
    depth: int,
    q_start: float,
    norms: InputNorms,
    correlations: InputCorrelations,
    pairs: int = PAIRS,
    seed: int = 0,
) -> Array:
    """1 − ρ of two inputs at layers 1 … depth, each pair of inputs in a network of its own; shape (layers, pairs).

    The first `pairs` of the chains of `run_chains`, each with a second input beside its own. Read-only.
    """
    every_k, every_gain = run_chains(chain, width, depth, q_start, norms, SAMPLES, seed)
    k, gains = every_k[:, :pairs], _TO_LOG * every_gain[:, :pairs]
    rng = np.random.default_rng((seed, 3))
    u = 1.0 - correlations.at(rng.standard_normal(pairs))
    # Half the difference of their variances, in units of k: k itself may outgrow all numbers.
    along = 0.5 * (q_start * norms.at(rng.standard_normal(pairs)) / k[0] - 1.0)
    table = _Table.of(chain, width, k)
    history = np.empty((depth, pairs))
    history[0] = u
    for layer in range(depth - 1):
        step = gains[layer] - gains[layer + 1] if layer < depth - 2 else gains[layer]
        at = table.look(k[layer], u)
        # A walk of smaller steps also falls behind its mean by less.
        noise = at.evenness * (step - at.log_gain + 0.5 * (1.0 - at.evenness) * at.noise_variance)
        with np.errstate(over="ignore", invalid="ignore"):
            shrunk = k[layer] / k[layer + 1]
            apart = shrunk * (u * np.exp(at.kept + at.log_gain + noise) + 0.5 * at.turned * along**2)
            along = at.slope * along * shrunk
        # A chain that has exploded beyond all numbers says nothing more of its inputs: they stay as they were.
        u = np.clip(np.where(np.isfinite(apart), apart, u), _LEAST, _MOST)
        along = np.where(np.isfinite(along), along, 0.0)
        history[layer + 1] = u
    history.flags.writeable = False
    return history


@dataclass(frozen=True)
class _Row:
    """What a layer does to each pair, at its k and u; see `_Table`."""

    kept: Array
    evenness: Array
    log_gain: Array
    noise_variance: Array
    slope: Array
    turned: Array


@dataclass(frozen=True)
class _Table:
    """The maps of one chain over log k, and over u^(1/4) where they depend on that.

    Attributes:
        kept: log of (1 − R_k(ρ))/((1 − ρ)χ₁), of shape (k, u): what the kinks leave.
        evenness: the deviation of the noise in units of that at u = 0, over u.
        by_variance: over k, rows of: log of the gain as the chains have it, its relative variance, V′, and χ₁H/k − V′².
    """

    low: float
    per_cell: float
    kept: Array
    evenness: Array
    by_variance: Array

    @classmethod
    def of(cls, chain: Chain, width: int, k: Array) -> "_Table":
        least, most = np.quantile(k[:: max(1, len(k) // 16)], (0.002, 0.998))
        logs = np.linspace(math.log(0.99 * least), math.log(1.01 * most), _VARIANCES)
        at = np.exp(logs)
        u = np.linspace(_FIRST, _LAST, _SEPARATIONS) ** 4
        grid_k, grid_u = np.repeat(at, u.size), np.tile(u, at.size)
        passed = (np.repeat(chain.variance(at), u.size) - chain.covariance(1.0 - grid_u, grid_k, grid_k)) / (
            grid_k * grid_u
        )
        gain = chain.gain(at)
        alive = np.repeat(gain > 1e-12, u.size)
        # A φ that is flat wherever k reaches passes nothing, and kinks take nothing from it.
        ratio = np.divide(passed, np.repeat(gain, u.size), out=np.ones(grid_u.size), where=alive)
        noise, slope = chain.noise(width, at), chain.variance_slope(at)
        turned = np.maximum(chain.sigma_w**2 * chain.phi.input_slope_moment(at) / at - slope**2, 0.0)
        middle = 1.0 if isinstance(chain.phi, Relative) else math.exp(0.5 * (logs[0] + logs[-1]))
        return cls(
            float(logs[0]),
            float(1.0 / (logs[1] - logs[0])),
            np.log(np.maximum(ratio, 1e-12)).reshape(at.size, u.size),
            _evenness(chain, middle, u),
            np.stack([noise.gain_log10 * _TO_LOG, noise.gain_variance, slope, turned]),
        )

    def look(self, k: Array, u: Array) -> _Row:
        """Linear between the entries; beyond the table, its ends."""
        cell, part = _place((np.log(k) - self.low) * self.per_cell, _VARIANCES)
        column, share = _place((np.sqrt(np.sqrt(u)) - _FIRST) * ((_SEPARATIONS - 1) / (_LAST - _FIRST)), _SEPARATIONS)
        kept = self.kept.ravel()
        corner = cell * _SEPARATIONS + column
        below = kept[corner] + share * (kept[corner + 1] - kept[corner])
        above = kept[corner + _SEPARATIONS]
        above = above + share * (kept[corner + _SEPARATIONS + 1] - above)
        left = self.by_variance[:, cell]
        found = left + part * (self.by_variance[:, cell + 1] - left)
        even = self.evenness[column] + share * (self.evenness[column + 1] - self.evenness[column])
        return _Row(below + part * (above - below), even, *found)


def _place(position: Array, entries: int) -> tuple[NDArray[np.intp], Array]:
    """(the entry to the left, how far beyond it), within a table of so many entries."""
    inside = np.clip(position, 0.0, entries - 1.0)
    cell = np.minimum(inside.astype(np.intp), entries - 2)
    return cell, inside - cell


def _evenness(chain: Chain, k: float, u: Array) -> Array:
    """√(relative variance of (φ_b − φ_a)² at u, over that at u → 0), from two Gaussian averages on a grid."""
    phi = chain.phi
    mu_1, mu_2 = phi.slope_moment(1, k), phi.slope_moment(2, k)
    far = u > _RESOLVED
    if not mu_1 > 1e-12 or 3.0 * mu_2 <= mu_1**2:
        return np.ones(u.size)
    nodes, weights = np.polynomial.hermite_e.hermegauss(2 * _NODES)
    nodes, weights = nodes[_NODES:], weights[_NODES:] / weights[_NODES:].sum()
    z = np.linspace(-5.5, 5.5, _POINTS)
    density = np.exp(-0.5 * z**2)
    density /= density.sum()
    half = np.sqrt(0.5 * k * u[far])[:, None, None] * nodes[:, None]
    middle = np.sqrt(k * np.maximum(1.0 - 0.5 * u[far], 0.0))[:, None, None] * z
    square = (phi(middle + half) - phi(middle - half)) ** 2
    second, fourth = (square @ density) @ weights, (square**2 @ density) @ weights
    spread = np.maximum(fourth / np.maximum(second, _LEAST) ** 2 - 1.0, 0.0)
    found = np.empty(u.size)
    found[far] = np.sqrt(spread / (3.0 * mu_2 / mu_1**2 - 1.0))
    # From 1 at u = 0 to the first value found, in √u.
    first = int(np.argmax(far))
    found[:first] = 1.0 + (found[first] - 1.0) * np.sqrt(u[:first] / u[first])
    return found
