"""Figure 3: what the clip m does to V′ and V″."""

import numpy as np
from matplotlib.figure import Figure

from hush._style import BLACK, name_of, panels, shades, styled
from hush.theory import slope_and_curvature_of_clip, threshold_from_sparsity

__all__ = ["draw_slopes"]

SPARSITIES = (0.6, 0.7, 0.8, 0.85, 0.9)


@styled
def draw_slopes() -> Figure:
    """V′(q*) above and V″(q*) below as functions of m, CReLU left and CST right, a line for each sparsity."""
    clips = np.linspace(0.02, 4.0, 80)
    figure, axes = panels(2, 2, 4.6, sharex=True, sharey="row")
    for column, name in enumerate(("crelu", "cst")):
        upper, lower = axes[column], axes[2 + column]
        for level in (0.5, 0.6, 0.7, 0.8, 0.9):
            upper.axhline(level, color=BLACK, ls="--", lw=0.6, zorder=1)
        lower.axhline(0.0, color=BLACK, lw=0.6, zorder=1)
        for sparsity, colour in zip(SPARSITIES, shades(len(SPARSITIES)), strict=True):
            threshold = threshold_from_sparsity(name, sparsity)
            slope, curvature = slope_and_curvature_of_clip(name, threshold, clips)
            upper.plot(clips, slope, color=colour, label=rf"$s={sparsity:g}$")
            lower.plot(clips, curvature, color=colour)
        upper.set_title(name_of(name))
        upper.set_ylim(0.0, 1.03)
        lower.set_xlabel(r"clip $m$")
        lower.set_xlim(0.0, 4.0)
    axes[0].set_ylabel(r"$V'(q^*)$")
    axes[2].set_ylabel(r"$V''(q^*)$")
    axes[1].legend(loc="lower right")
    return figure
