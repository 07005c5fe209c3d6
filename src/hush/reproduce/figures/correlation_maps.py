"""Figures 6 and 7: correlation maps of ReLU_τ and ST_τ on and around the Edge of Chaos."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hush._style import identity_line, mark, panels, styled
from hush.reproduce.figures._sides import SIDES, Side, side_of, tell_missing
from hush.theory import Activation, activation, correlation_fixed_points, correlation_map

__all__ = ["correlations_of_shifted_relu", "correlations_of_soft_threshold", "draw_correlation_map"]

THRESHOLDS = (0.0, 0.25, 0.5, 1.0)


def correlations_of_shifted_relu() -> Figure:
    """Figure 6."""
    return _correlations("shifted_relu")


def correlations_of_soft_threshold() -> Figure:
    """Figure 7."""
    return _correlations("soft_threshold")


@styled
def _correlations(name: str) -> Figure:
    figure, axes = panels(1, 4, 2.5, sharex=True, sharey=True)
    for panel, threshold in zip(axes, THRESHOLDS, strict=True):
        draw_correlation_map(panel, activation(name, threshold))
        panel.set_title(rf"$\tau={threshold:g}$")
        panel.set_xlabel(r"$\rho$")
    axes[0].set_ylabel(r"$R(\rho)$")
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def draw_correlation_map(panel: Axes, phi: Activation) -> None:
    """R(ρ) on the Edge of Chaos and either side of it, with a round marker at each fixed point ρ* < 1."""
    identity_line(panel, 0.0, 1.0)
    # Fine near 1, where R(ρ) − ρ is small and the curves part.
    rho = 1.0 - np.linspace(1.0, 0.0, 161) ** 2
    for kind in SIDES:
        side = side_of(phi, kind)
        if side is not None:
            _draw(panel, phi, side, rho)
    tell_missing(panel, phi)
    panel.set_xlim(0.0, 1.0)
    panel.set_ylim(0.0, 1.0)
    panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    panel.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    panel.set_aspect("equal")


def _draw(panel: Axes, phi: Activation, side: Side, rho: np.ndarray) -> None:
    values = correlation_map(phi, rho, 1.0, side.sigma_w, side.sigma_b)
    panel.plot(rho, values, color=side.kind.colour, ls=side.kind.dashes, label=side.kind.label)
    if side.kind.chi <= 1.0:
        # In Hermite's expansion R has no negative coefficient: convex on [0, 1], it cannot cross with R′(1) ≤ 1.
        return
    for point in correlation_fixed_points(phi, 1.0, side.sigma_w, side.sigma_b):
        if 0.0 <= point.value < 1.0 - 1e-6:
            mark(panel, point.value, point.value, side.kind.colour)
