"""Figures 2, 4 and 9: the variance maps V(q) that make the paper's argument."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hush._style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    identity_line,
    mark,
    name_of,
    panels,
    shades,
    styled,
)
from hush.theory import (
    Design,
    Stability,
    activation,
    chi_1,
    design,
    edge_of_chaos,
    shifted_relu,
    soft_threshold,
    variance_map,
)

__all__ = ["clip_too_large", "fixed_sparsities", "unclipped"]

THRESHOLDS = (0.0, 0.25, 0.5, 1.0)


@styled
def unclipped() -> Figure:
    """Figure 2: V(q) of ReLU_τ and ST_τ on the Edge of Chaos at q* = 1, a panel for each τ; the two coincide."""
    q = np.linspace(0.0, 3.0, 301)
    figure, axes = panels(1, 4, 2.35, sharex=True, sharey=True)
    for panel, threshold in zip(axes, THRESHOLDS, strict=True):
        identity_line(panel, 0.0, 3.0)
        both = (
            (shifted_relu(threshold), BLUE, "-", 2.6, "shifted_relu"),
            (soft_threshold(threshold), ORANGE, (0, (3, 3)), 1.6, "soft_threshold"),
        )
        for phi, colour, dashes, width, name in both:
            w2, b2 = edge_of_chaos(phi, 1.0)
            values = variance_map(phi, q, w2**0.5, b2**0.5)
            panel.plot(q, values, color=colour, ls=dashes, lw=width, label=f"{name_of(name)}")
        mark(panel, 1.0, 1.0, BLACK, stable=False)
        shares = (shifted_relu(threshold).sparsity(1.0), soft_threshold(threshold).sparsity(1.0))
        panel.set_title(rf"$\tau={threshold:g}$" + f"\n$s$ = {shares[0]:.2f} and {shares[1]:.2f}")
        panel.set_xlabel(r"$q$")
        panel.set_xlim(0.0, 3.0)
        panel.set_ylim(0.0, 4.2)
    axes[0].set_ylabel(r"$V(q)$")
    axes[0].legend(loc="upper left", handlelength=2.2)
    return figure


@styled
def clip_too_large() -> Figure:
    """Figure 4: V(q) at 85 % sparsity with m too large, every fixed point marked and its χ₁ written beside it."""
    figure, axes = panels(1, 2, 3.3)
    settings = (
        (axes[0], "crelu", ((0.9, ORANGE),), 4.0, "(a)"),
        (axes[1], "cst", ((0.8, ORANGE), (0.9, GREEN)), 7.0, "(b)"),
    )
    for panel, name, curves, reach, letter in settings:
        identity_line(panel, 0.0, reach)
        q = np.linspace(0.0, reach, 701)
        for v_prime, colour in curves:
            made = design(name, 0.85, v_prime=v_prime)
            values = variance_map(made.phi(), q, made.sigma_w, made.sigma_b)
            label = rf"$V'(q^*)={v_prime:g}$, $m={made.clip:.2f}$"
            panel.plot(q, values, color=colour, label=label)
            _mark_fixed_points(panel, made, colour)
        mark(panel, 1.0, 1.0, BLACK)
        panel.set_title(rf"{letter} {name_of(name)}, $s=0.85$, $q^*=1$")
        panel.set_xlabel(r"$q$")
        panel.set_xlim(0.0, reach)
        panel.set_ylim(0.0, reach)
        panel.legend(loc="upper left")
    axes[0].set_ylabel(r"$V(q)$")
    return figure


def _mark_fixed_points(panel: Axes, made: Design, colour: str) -> None:
    """Those beside q* = 1, which all curves share and where χ₁ = 1 by design."""
    for point in made.fixed_points:
        if abs(point.value - made.q_star) > 1e-6:
            mark(panel, point.value, point.value, colour, stable=point.stability is Stability.STABLE)
            chi = chi_1(made.phi(), point.value, made.sigma_w)
            panel.annotate(
                rf"$\chi_1={chi:.2f}$", (point.value, point.value), (7, -11), textcoords="offset points", fontsize=8
            )


@styled
def fixed_sparsities() -> Figure:
    """Figure 9: V(q) of ReLU_τ and ST_τ on the Edge of Chaos at the sparsities of the paper's experiments."""
    q = np.linspace(0.0, 3.0, 301)
    sparsities = (0.5, 0.6, 0.7)
    figure, axes = panels(1, 2, 3.0, sharex=True, sharey=True)
    for panel, name in zip(axes, ("shifted_relu", "soft_threshold"), strict=True):
        identity_line(panel, 0.0, 3.0)
        for sparsity, colour in zip(sparsities, shades(len(sparsities)), strict=True):
            made = design(name, sparsity)
            phi = activation(name, made.threshold)
            label = rf"$s={sparsity:g}$, $\tau={made.threshold:.2f}$"
            panel.plot(q, variance_map(phi, q, made.sigma_w, made.sigma_b), color=colour, label=label)
        mark(panel, 1.0, 1.0, BLACK, stable=False)
        panel.set_title(name_of(name))
        panel.set_xlabel(r"$q$")
        panel.set_xlim(0.0, 3.0)
        panel.set_ylim(0.0, 4.2)
        panel.legend(loc="upper left")
    axes[0].set_ylabel(r"$V(q)$")
    return figure
