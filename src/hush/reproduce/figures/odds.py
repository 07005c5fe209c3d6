"""Odds of failure over clip and depth, with the frontier of the safe clip for several widths."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hush._style import BLACK, name_of, panels, styled
from hush.theory import IMAGE_NORMS, Chain, activation, edge_of_chaos, threshold_from_sparsity
from hush.theory.chain_run import run_chains
from hush.theory.designing import SAFE_ODDS
from hush.theory.training_rule import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10

__all__ = ["ByDepth", "odds", "odds_by_depth"]

Array = NDArray[np.float64]

_SPARSITY, _WIDTH, _DEEPEST, _SAMPLES = 0.85, 300, 200, 6000
_WIDTHS = {100: ":", 300: "-", 1000: "--"}
_CLIPS = np.linspace(0.4, 2.4, 21)


class ByDepth(NamedTuple):
    """The share of chains whose gradient explodes, and that which explodes or vanishes, at depths 2, 3, …"""

    explode: Array
    fail: Array


@lru_cache(maxsize=256)
def odds_by_depth(name: str, sparsity: float, clip: float, width: int, deepest: int) -> ByDepth:
    """The odds at depths 2 … deepest, all from one set of chains on the Edge of Chaos.

    The first d layers of a chain are a chain of depth d. With g_l the log10 gain of layer l, the largest gain from
    layer d back to any other is M_d = g_{d−1} + max(M_{d−1}, 0).
    """
    phi = activation(name, threshold_from_sparsity(name, sparsity), clip)
    w2, b2 = edge_of_chaos(phi, 1.0)
    block = Chain(phi, math.sqrt(w2), math.sqrt(b2))
    back = run_chains(block, width, deepest, 1.0, IMAGE_NORMS, _SAMPLES)[1]
    gains = np.vstack([back[:-1] - back[1:], back[-1:]])
    largest, total = np.full(_SAMPLES, -np.inf), np.zeros(_SAMPLES)
    explode, fail = [], []
    for gain in gains:
        largest, total = gain + np.maximum(largest, 0.0), total + gain
        exploded = largest > EXPLODING_GAIN_LOG10
        explode.append(exploded.mean())
        fail.append((exploded | (total < VANISHING_GAIN_LOG10)).mean())
    return ByDepth(np.array(explode), np.array(fail))


@styled
def odds() -> Figure:
    """A heat map of the odds at width 300 and 85 % sparsity, CReLU and CST, and where 1 % explode at three widths."""
    depths = np.arange(2, _DEEPEST + 1)
    figure, axes = panels(1, 2, 3.5, sharex=True, sharey=True)
    for panel, name in zip(axes, ("crelu", "cst"), strict=True):
        for width, dashes in _WIDTHS.items():
            grids = [odds_by_depth(name, _SPARSITY, float(m), width, _DEEPEST) for m in _CLIPS]
            if width == _WIDTH:
                fail = np.array([grid.fail for grid in grids]).T
                filled = panel.contourf(_CLIPS, depths, fail, np.linspace(0.0, 1.0, 11), cmap="Blues")
            # Interpolated in the logarithm, in which the odds are nearly straight; half a count keeps it finite.
            logs = np.log10(np.array([grid.explode for grid in grids]).T + 0.5 / _SAMPLES)
            panel.contour(_CLIPS, depths, logs, [np.log10(SAFE_ODDS)], colors=BLACK, linewidths=1.4, linestyles=dashes)
            panel.plot([], [], color=BLACK, ls=dashes, lw=1.4, label=f"width {width}")
        panel.set_title(rf"{name_of(name)}, $s={_SPARSITY:g}$")
        panel.set_xlabel(r"clip $m$")
        panel.grid(False)
    axes[0].set_ylabel("depth")
    axes[0].legend(loc="lower left", title="1 % explode at", title_fontsize=8)
    figure.colorbar(filled, ax=list(axes), label=f"odds of failure at width {_WIDTH}")
    return figure
