"""Figures 10 to 13: V(q) and R(ρ) of CReLU and CST over the grid of m and τ."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hush._style import BLACK, identity_line, mark, panels, styled
from hush.reproduce.figures._sides import SIDES, side_of, tell_missing
from hush.reproduce.figures.correlation_maps import draw_correlation_map
from hush.theory import Activation, Stability, activation, variance_fixed_points, variance_map

__all__ = ["correlations_of_crelu", "correlations_of_cst", "variances_of_crelu", "variances_of_cst"]

CLIPS = (1.0, 1.5, 2.0)
THRESHOLDS = (0.0, 0.25, 0.5, 1.0)
# So far the panels of a clip reach: every fixed point of its row is inside.
_REACH = {1.0: 3.0, 1.5: 3.0, 2.0: 6.0}


def variances_of_crelu() -> Figure:
    """Figure 10."""
    return _grid("crelu", _draw_variance_map, r"$q$", r"$V(q)$")


def variances_of_cst() -> Figure:
    """Figure 11."""
    return _grid("cst", _draw_variance_map, r"$q$", r"$V(q)$")


def correlations_of_crelu() -> Figure:
    """Figure 12."""
    return _grid("crelu", draw_correlation_map, r"$\rho$", r"$R(\rho)$")


def correlations_of_cst() -> Figure:
    """Figure 13."""
    return _grid("cst", draw_correlation_map, r"$\rho$", r"$R(\rho)$")


@styled
def _grid(name: str, draw: Callable[[Axes, Activation], None], x: str, y: str) -> Figure:
    rows, columns = len(CLIPS), len(THRESHOLDS)
    figure, axes = panels(rows, columns, 6.5, sharex="row", sharey="row")
    for i, clip in enumerate(CLIPS):
        for j, threshold in enumerate(THRESHOLDS):
            panel, phi = axes[i * columns + j], activation(name, threshold, clip)
            draw(panel, phi)
            panel.set_title(rf"$\tau={threshold:g}$, $m={clip:g}$, $s={phi.sparsity(1.0):.2f}$", fontsize=8)
            if i == rows - 1:
                panel.set_xlabel(x)
            if j == 0:
                panel.set_ylabel(y)
    handles, labels = axes[columns - 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _draw_variance_map(panel: Axes, phi: Activation) -> None:
    """V(q) on the Edge of Chaos and either side of it; filled dots are stable fixed points, open ones unstable."""
    reach = _REACH[phi.bound()]
    identity_line(panel, 0.0, reach)
    q = np.linspace(0.0, reach, int(100 * reach) + 1)
    for kind in SIDES:
        side = side_of(phi, kind)
        if side is None:
            continue
        panel.plot(
            q, variance_map(phi, q, side.sigma_w, side.sigma_b), color=kind.colour, ls=kind.dashes, label=kind.label
        )
        for point in variance_fixed_points(phi, side.sigma_w, side.sigma_b):
            if abs(point.value - 1.0) > 1e-6:
                mark(panel, point.value, point.value, kind.colour, stable=point.stability is Stability.STABLE)
    tell_missing(panel, phi)
    # All sides share q* = 1.
    mark(panel, 1.0, 1.0, BLACK)
    panel.set_xlim(0.0, reach)
    panel.set_ylim(0.0, reach)
    panel.set_xticks(np.linspace(0.0, reach, 4), [f"{tick:g}" for tick in np.linspace(0.0, reach, 4)])
    panel.set_yticks(panel.get_xticks(), [f"{tick:g}" for tick in panel.get_xticks()])
    panel.set_aspect("equal")
