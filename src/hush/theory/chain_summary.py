"""How the variance and the gradient wander at width N and depth L, in quantiles by layer and odds: will it train?"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hush.theory._arrays import Array
from hush.theory._checks import check_size
from hush.theory.activations.protocol import Activation
from hush.theory.block.choose import block_from
from hush.theory.block.protocol import Block
from hush.theory.chain_draws import sampling_noise
from hush.theory.chain_run import SAMPLES, run_chains
from hush.theory.input_norms import IMAGE_NORMS, InputNorms
from hush.theory.training_rule import LEVELS, TRAINABLE_ODDS, judge_gains

__all__ = ["FiniteWidth", "finite_width", "summarise"]


@dataclass(frozen=True)
class FiniteWidth:
    """What the chains did at this width and depth.

    Attributes:
        q_quantiles: for each level the quantile of q at layers 1 … depth; q = Σ_j h_j²/N is what one measures in a
            network, k and the sampling noise of N units.
        gain_quantiles: for each level the quantile of log10 |δ_l|²/|δ_L|² at layers 1 … depth; 0 at the last.
        gain_log10: quantiles of log10 of the end-to-end gain |δ_1|²/|δ_L|², by level.
        explode, vanish: the odds over initialisations and inputs.
        stream_quantiles: for each level the quantile of |x|²/N entering blocks 1 … depth, where a stream is carried.
    """

    width: int
    depth: int
    q_quantiles: dict[float, tuple[float, ...]]
    gain_quantiles: dict[float, tuple[float, ...]]
    gain_log10: dict[float, float]
    explode: float
    vanish: float
    stream_quantiles: dict[float, tuple[float, ...]] | None = None

    @property
    def trains(self) -> bool:
        """Whether the calibrated rule lets it train."""
        return self.explode <= TRAINABLE_ODDS and self.vanish <= TRAINABLE_ODDS


def finite_width(
    phi: Activation | Block,
    sigma_w: float | None = None,
    sigma_b: float | None = None,
    width: int = 0,
    depth: int = 0,
    *,
    q_start: float = 1.0,
    norms: InputNorms = IMAGE_NORMS,
    positions: int | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
) -> FiniteWidth:
    """Run the chains of a network of `depth` layers of `width` units, from inputs of mean square q_start.

    The network repeats the plain chain of φ at σ_w and σ_b, or a block: finite_width(block, width=300, depth=100). The
    first layer preserves the input's variance (paper, appendix D), so k_1 = q_start × a draw from `norms`. `positions`
    is 1 for an MLP and the size of the feature map for a CNN.
    """
    check_size(width, depth)
    block = block_from(phi, sigma_w, sigma_b, positions)
    k, gains = run_chains(block, width, depth, q_start, norms, samples, seed)
    if not block.keeps_stream:
        return summarise(width, k, gains, seed)
    # The stream is there as measured; what one measures of q has the noise of the units that draw it.
    units = block.preactivation_units(width)
    made = summarise(units, block.preactivation_variance(k), gains, seed)
    return replace(made, width=width, stream_quantiles=_layer_quantiles(k.astype(np.float32)))


def summarise(width: int | None, k: Array, gains: Array, seed: int = 0) -> FiniteWidth:
    """The quantiles and odds of `run_chains`' (k, gains) at this width; None where q is k, without sampling noise."""
    depth, samples = k.shape
    # Single precision sorts twice as fast; relative to the first q, whatever the unit, it does not overflow.
    unit = float(np.median(k[0]))
    relative = (k / unit).astype(np.float32)
    if width is not None:
        relative = relative * sampling_noise(width, depth, samples, seed)
    q = _layer_quantiles(relative, unit)
    back = _layer_quantiles(np.vstack([gains, np.zeros(samples)]).astype(np.float32))
    outcome = judge_gains(gains)
    return FiniteWidth(width or 0, depth, q, back, outcome.gain_log10, outcome.explode, outcome.vanish)


def _layer_quantiles(values: NDArray[np.float32], unit: float = 1.0) -> dict[float, tuple[float, ...]]:
    """For each level the quantile over the samples of each layer, of values in this unit."""
    # Sorting everything is several times as fast as np.quantile's partitioning.
    ordered = np.sort(values, axis=1)
    quantiles = {}
    for level in LEVELS:
        place = level * (values.shape[1] - 1)
        low, part = int(place), place % 1.0
        below, above = (ordered[:, i].astype(np.float64) for i in (low, min(low + 1, values.shape[1] - 1)))
        quantiles[level] = tuple((unit * (below + part * (above - below))).tolist())
    return quantiles
