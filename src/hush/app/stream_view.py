"""Everything the page shows for a network of blocks on a residual stream, as numbers."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hush.app.curve import Array, Curve, Quantiles, silhouette
from hush.app.settings import NORMS, NUMBER, Clip, Settings
from hush.app.stream_sample import StreamSample, run_sample
from hush.app.verdict import Verdict, judge_stream
from hush.theory import Design, design
from hush.theory.training_rule import LEVELS

__all__ = ["StreamView", "compute_stream_view", "hidden_units"]

# What one measures of the share of zeros is an average over units.
_SEED = 2


@dataclass(frozen=True)
class StreamView:
    """One design for blocks on a residual stream, and what to expect of it.

    Attributes:
        design: that of `hush.design`, with the odds of the networks sampled here.
        stream: of p = |x|²/N after 0 … depth blocks.
        q, sparsity: of the pre-activations of blocks 1 … depth, as measured in one network for one input.
        gain: of log10 |δ_l|²/|δ_L|² after 0 … depth blocks.
        correlation: of the cosine of two inputs' streams after 0 … depth blocks.
        networks, pairs: how many networks, and how many pairs of inputs, these are quantiles of.
        silhouette: φ.
    """

    settings: Settings
    design: Design
    verdict: Verdict
    stream: Quantiles
    q: Quantiles
    sparsity: Quantiles
    gain: Quantiles
    correlation: Quantiles
    networks: int
    pairs: int
    silhouette: Curve


@lru_cache(maxsize=256)
def compute_stream_view(settings: Settings) -> StreamView:
    """Compute what the page shows.

    Raises:
        ValueError: if there is no such design.
    """
    made = unjudged_design(settings)
    sample = run_sample(made, settings.width, settings.depth)
    judged = sample.judged(made)
    q, shares = _measured(made, sample, settings.width)
    return StreamView(
        settings=settings,
        design=judged,
        verdict=judge_stream(judged),
        stream=_quantiles(sample.stream),
        q=_quantiles(q),
        sparsity=_quantiles(shares),
        gain=_quantiles(np.vstack([sample.gains, np.zeros(sample.gains.shape[1])])),
        correlation=_quantiles(sample.cosines),
        networks=sample.gains.shape[1],
        pairs=sample.cosines.shape[1],
        silhouette=silhouette(made.phi(), made),
    )


def unjudged_design(settings: Settings) -> Design:
    """What `hush.design` gives, but for the odds, which take it a second or more."""
    norm, behind = NORMS[settings.norm]
    chosen: dict[str, Any] = {}
    if settings.is_clipped and settings.clip_by is Clip.HEIGHT:
        chosen["clip"] = settings.clip
    made = design(
        settings.activation,
        settings.sparsity,
        depth=settings.depth,
        q_star=settings.q_star,
        block=settings.block,
        norm=norm,
        post_norm=behind,
        branch_scale=settings.branch_scale if settings.branch_rule == NUMBER else settings.branch_rule,
        **chosen,
    )
    hidden = hidden_units(settings)
    # How many hidden units there are changes the noise and nothing else.
    expansion = None if hidden is None else hidden / settings.width
    return replace(made, width=settings.width, hidden=hidden, expansion=expansion)


def hidden_units(settings: Settings) -> int | None:
    """Of a block with two matrices."""
    return max(1, round(settings.hidden_ratio * settings.width)) if settings.has_hidden else None


def _measured(made: Design, sample: StreamSample, width: int) -> tuple[Array, Array]:
    """(q, the share of zeros) as one measures them in a layer of so many units."""
    block, stream = made.block(), sample.stream[:-1]
    q = np.asarray(block.preactivation_variance(stream))
    share = np.asarray(block.sparsity(stream))
    rng, units = np.random.default_rng(_SEED), block.preactivation_units(width)
    if units is not None:
        q = q * rng.chisquare(units, q.shape) / units
    noise = rng.standard_normal(share.shape) / np.sqrt(units or width)
    return q, np.clip(share + np.sqrt(share * (1.0 - share)) * noise, 0.0, 1.0)


def _quantiles(values: Array) -> Quantiles:
    """Of each row."""
    found = np.quantile(values, LEVELS, axis=1)
    return {level: tuple(row.tolist()) for level, row in zip(LEVELS, found, strict=True)}
