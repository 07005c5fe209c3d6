"""Figure 1: the activations."""

import numpy as np
from matplotlib.figure import Figure

from hush._style import BLUE, name_of, panels, styled
from hush.theory import crelu, cst, relu, shifted_relu, soft_threshold

__all__ = ["draw_activations"]


@styled
def draw_activations() -> Figure:
    """ReLU, ReLU_τ, ST_τ, CReLU_τ,m and CST_τ,m at τ = 1, m = 1."""
    one = r"$\tau=1$"
    both = r"$\tau=1,\ m=1$"
    shown = (
        (relu(), "ReLU", r"$\tau=0$"),
        (shifted_relu(1.0), name_of("shifted_relu"), one),
        (soft_threshold(1.0), name_of("soft_threshold"), one),
        (crelu(1.0, 1.0), name_of("crelu"), both),
        (cst(1.0, 1.0), name_of("cst"), both),
    )
    x = np.linspace(-3.0, 3.0, 601)
    figure, axes = panels(1, 5, 1.9, sharex=True, sharey=True)
    for panel, (phi, name, values) in zip(axes, shown, strict=True):
        panel.plot(x, phi(x), color=BLUE)
        panel.set_title(f"{name}\n{values}")
        panel.set_xlabel(r"$x$")
        panel.set_xticks([-3, -1, 0, 1, 3])
        panel.set_aspect("equal")
    axes[0].set_ylabel(r"$\phi(x)$")
    return figure
