"""Odds of failure over clip and depth, with the frontier of the safe clip for several widths."""

from functools import lru_cache

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hush.reproduce.figures._style import BLACK, name_of, panels, styled
from hush.theory import IMAGE_NORMS, activation, edge_of_chaos, threshold_from_sparsity
from hush.theory.design import SAFE_ODDS
from hush.theory.finite_width import EXPLODING_GAIN_LOG10, run_chains

__all__ = ["odds", "odds_by_depth"]

Array = NDArray[np.float64]

_SPARSITY, _WIDTH, _DEEPEST = 0.85, 300, 200
_WIDTHS = {100: ":", 300: "-", 1000: "--"}
_CLIPS = np.linspace(0.4, 2.4, 41)


@lru_cache(maxsize=512)
def odds_by_depth(name: str, sparsity: float, clip: float, width: int, deepest: int) -> Array:
    """The odds that a gradient explodes at depths 2 … deepest, all from one set of chains.

    The first d layers of a chain are a chain of depth d. With g_l the log10 gain of layer l, the largest gain from
    layer d back to any other is M_d = g_{d−1} + max(M_{d−1}, 0).
    """
    phi = activation(name, threshold_from_sparsity(name, sparsity), clip)
    w2, b2 = edge_of_chaos(phi, 1.0)
    back = run_chains(phi, w2, b2, width, deepest, 1.0, IMAGE_NORMS)[1]
    gains = np.vstack([back[:-1] - back[1:], back[-1:]])
    largest, shares = np.full(gains.shape[1], -np.inf), []
    for gain in gains:
        largest = gain + np.maximum(largest, 0.0)
        shares.append(float(np.mean(largest > EXPLODING_GAIN_LOG10)))
    return np.array(shares)


@styled
def odds() -> Figure:
    """A heat map of the odds at width 300 and 85 % sparsity, CReLU and CST, and where they are 1 % at three widths."""
    depths = np.arange(2, _DEEPEST + 1)
    figure, axes = panels(1, 2, 3.5, sharex=True, sharey=True)
    levels = np.linspace(0.0, 1.0, 11)
    for panel, name in zip(axes, ("crelu", "cst"), strict=True):
        for width, dashes in _WIDTHS.items():
            grid = np.array([odds_by_depth(name, _SPARSITY, float(m), width, _DEEPEST) for m in _CLIPS]).T
            if width == _WIDTH:
                filled = panel.contourf(_CLIPS, depths, grid, levels, cmap="cividis")
            panel.contour(_CLIPS, depths, grid, [SAFE_ODDS], colors="white", linewidths=3.2, linestyles="-", alpha=0.35)
            panel.contour(_CLIPS, depths, grid, [SAFE_ODDS], colors="white", linewidths=1.6, linestyles=dashes)
            panel.plot([], [], color=BLACK, ls=dashes, label=f"width {width}")
        panel.set_title(rf"{name_of(name)}, $s={_SPARSITY:g}$")
        panel.set_xlabel(r"clip $m$")
        panel.grid(False)
    axes[0].set_ylabel("depth")
    axes[1].legend(loc="upper left", title="1 % frontier", title_fontsize=8)
    figure.colorbar(filled, ax=list(axes), label=f"odds that a gradient explodes, width {_WIDTH}")
    return figure
