"""Figure 8: the curves of the Edge of Chaos."""

import numpy as np
from matplotlib.figure import Figure

from hush._style import BLACK, name_of, panels, shades, styled
from hush.theory import activation, edge_curve

__all__ = ["edge_of_chaos_curves"]

THRESHOLDS = (0.25, 0.5, 1.0, 1.5)


@styled
def edge_of_chaos_curves() -> Figure:
    """σ_w² against σ_b² along the Edge of Chaos as q* runs, for ReLU_τ and ST_τ; a dot where q* = 1."""
    q_star = np.geomspace(0.01, 300.0, 600)
    figure, axes = panels(1, 2, 3.2, sharex=True, sharey=True)
    for panel, name in zip(axes, ("shifted_relu", "soft_threshold"), strict=True):
        relu = activation(name, 0.0)
        at_zero = edge_curve(relu, np.ones(1))
        panel.plot(
            at_zero[1] ** 2, at_zero[0] ** 2, "s", color=BLACK, mfc="white", label=r"$\tau=0$, every $q^*$", zorder=4
        )
        for threshold, colour in zip(THRESHOLDS, shades(len(THRESHOLDS)), strict=True):
            phi = activation(name, threshold)
            sigma_w, sigma_b = edge_curve(phi, q_star)
            panel.plot(sigma_b**2, sigma_w**2, color=colour, label=rf"$\tau={threshold:g}$")
            dot = edge_curve(phi, np.ones(1))
            panel.plot(dot[1] ** 2, dot[0] ** 2, "o", color=BLACK, zorder=5)
        panel.set_yscale("log")
        panel.set_ylim(0.8, 60.0)
        panel.set_xlim(-0.06, 2.5)
        panel.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        panel.minorticks_off()
        panel.set_title(name_of(name))
        panel.set_xlabel(r"$\sigma_b^2$")
    axes[0].set_ylabel(r"$\sigma_w^2$")
    axes[1].legend(loc="upper right", title=r"black dot: $q^*=1$", title_fontsize=8)
    return figure
