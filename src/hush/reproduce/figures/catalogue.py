"""Every figure by name: its number and caption in the paper, and the function that draws it.

Nothing here loads matplotlib; a figure's module is loaded when it is drawn.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Entry", "draw", "find"]


@dataclass(frozen=True)
class Entry:
    """One figure.

    Attributes:
        number: that in the paper; None for a figure the paper does not have.
        place: the module and function that draw it.
        subject: what it shows, in a few words.
        caption: the paper's, or ours where it has none.
        note: what was chosen here that the paper does not print.
    """

    name: str
    number: int | None
    place: tuple[str, str]
    subject: str
    caption: str
    note: str = ""

    @property
    def title(self) -> str:
        """The caption with its number, as printed under the figure."""
        return self.caption if self.number is None else f"Figure {self.number}: {self.caption}"

    @property
    def summary(self) -> str:
        """The subject with the number, for lists."""
        return self.subject if self.number is None else f"Figure {self.number}: {self.subject}"

    def draw(self, **sources: Any) -> "Figure":
        """The figure; `sources` are those its function takes, such as the runs it reads."""
        module, function = self.place
        figure: Figure = getattr(import_module(f"hush.reproduce.figures.{module}"), function)(**sources)
        return figure


_GRID = (
    "From top to bottom, the rows correspond to m = 1, m = 1.5, and m = 2, and from left to right the columns "
    "correspond to τ = 0, τ = 0.25, τ = 0.5 and τ = 1."
)
_MARKED = (
    "Fixed points ρ* < 1 (where the correlation map crosses the diagonal R(ρ) = ρ) are indicated by round markers on "
    "the relevant curves."
)
_SIDES = (
    "The sides have χ₁ = 0.8 and 1.2 at q* = 1, with the σ_b² that keeps V(1) = 1; where that would be negative there "
    "is no curve."
)
_DOTS = "Filled dots are further stable fixed points, open ones unstable ones."

_ENTRIES = (
    Entry(
        "fig1",
        1,
        ("activations", "draw_activations"),
        "the activations",
        "From left to right: ReLU (i.e. ReLU_τ with τ = 0), ReLU_τ (τ = 1), ST_τ (τ = 1), CReLU_{τ,m} (τ = 1, m = 1), "
        "CST_{τ,m} (τ = 1, m = 1).",
    ),
    Entry(
        "fig2",
        2,
        ("variance_maps", "unclipped"),
        "V(q) of ReLU_τ and ST_τ on the Edge of Chaos",
        "Variance maps for ReLU_τ and ST_τ with (σ_w, σ_b) on the EoC, for different values of τ. Here q* = 1 is used "
        "to compute χ₁ of ReLU_τ. The dashed line is the identity map. The curves for ReLU_τ and ST_τ overlap exactly "
        "for a given τ. Note, however, that a fixed value of τ corresponds to substantially different activation "
        "sparsities for ReLU_τ and ST_τ. Figure 9 compares V(q) for fixed output sparsities.",
        "Above each panel the sparsity of ReLU_τ and that of ST_τ. The open dot is q*, stable from below only.",
    ),
    Entry(
        "fig3",
        3,
        ("slopes", "draw_slopes"),
        "V′ and V″ against the clip m",
        "Plots of V′(m) (upper) and V″(m) (lower) at q* = 1 for CReLU_{τ,m} (left) and CST_{τ,m} (right) for different "
        "fractional sparsities. For V′(m) the horizontal dashed black lines are plotted at 0.5, 0.6, 0.7, 0.8, 0.9.",
    ),
    Entry(
        "fig4",
        4,
        ("variance_maps", "clip_too_large"),
        "V(q) at 85 % sparsity with m too large",
        "Variance maps for CReLU_{τ,m} in (a) and CST_{τ,m} in (b) at 85 % sparsity and m chosen such that even though "
        "V′(q*) < 1 the network is unstable to train. For CReLU_{τ,m} training fails due to V(q) being approximately q "
        "for a sufficiently large region around q* that the effective value of χ₁ varies above 1 which results in "
        "exploding gradients. For CST_{τ,m} training fails for the same reason of effective χ₁ > 1, which occurs even "
        "more dramatically as V(q) exceeds q and has a second, unstable, fixed point as well as another stable fixed "
        "point, but with χ₁ substantially greater than 1. (a) s = 0.85, m chosen such that V′(q*) = 0.9 (orange), with "
        "q* = 1. (b) s = 0.85, m chosen such that V′(q*) = 0.8 (orange) and 0.9 (green), with q* = 1.",
        f"{_DOTS} The black dot is q* = 1, where χ₁ = 1.",
    ),
    Entry(
        "fig5",
        5,
        ("gradient_norms", "draw_short_runs"),
        "gradient norms per layer over the first 15 steps of a failed run",
        "Gradient norms per layer for the first 15 steps of a failed training run of DNNs on MNIST. "
        "(a) CReLU_{τ,m}: s = 0.85, m = 1.74, V′(q*) = 0.9. (b) CST_{τ,m}: s = 0.85, m = 1.22, V′(q*) = 0.8.",
        "Drawn from short runs on the embedded digits, or on MNIST with --data mnist: 100 layers × 300, SGD at 1e-4, "
        "batch 64; the first of seeds 0 to 4 in which a gradient norm passes 1000.",
    ),
    Entry(
        "fig6",
        6,
        ("correlation_maps", "correlations_of_shifted_relu"),
        "R(ρ) of ReLU_τ on and around the Edge of Chaos",
        "Correlation maps for ReLU_τ with (σ_w, σ_b) on, and on either side of, the EoC, for different values of τ – "
        "except in the case where no q* exists for those hyperparameters.",
        f"{_SIDES} Round markers are fixed points ρ* < 1.",
    ),
    Entry(
        "fig7",
        7,
        ("correlation_maps", "correlations_of_soft_threshold"),
        "R(ρ) of ST_τ on and around the Edge of Chaos",
        "Correlation maps for ST_τ with (σ_w, σ_b) on, and on either side of, the EoC, for different values of τ – "
        "except in the case where no q* exists for those hyperparameters.",
        f"{_SIDES} Round markers are fixed points ρ* < 1.",
    ),
    Entry(
        "fig8",
        8,
        ("edge_of_chaos", "edge_of_chaos_curves"),
        "the curves of the Edge of Chaos",
        "Edge of Chaos for ReLU_τ and ST_τ for different τ. As expected, the σ_w² values for ReLU_τ are twice those "
        "for ST_τ for the same q*. The black dot corresponds to q* = 1.",
        "q* falls from right to left along each curve. At τ = 0 the curve is one point.",
    ),
    Entry(
        "fig9",
        9,
        ("variance_maps", "fixed_sparsities"),
        "V(q) of ReLU_τ and ST_τ at fixed sparsities",
        "Variance maps for ReLU_τ (left) and ST_τ (right) with (σ_w, σ_b) at the EoC for different values of "
        "sparsity s.",
        "The open dot is q* = 1, stable from below only.",
    ),
    Entry(
        "fig10",
        10,
        ("clipped_grids", "variances_of_crelu"),
        "V(q) of CReLU over m and τ",
        "Variance maps for CReLU_{τ,m} with (σ_w, σ_b) at and on either side of the EoC, for different s and m, with "
        f"q* = 1. {_GRID}",
        f"{_SIDES} {_DOTS} The black dot is q* = 1.",
    ),
    Entry(
        "fig11",
        11,
        ("clipped_grids", "variances_of_cst"),
        "V(q) of CST over m and τ",
        "Variance maps for CST_{τ,m} with (σ_w, σ_b) at and on either side of the EoC, for different τ and m, with "
        f"q* = 1. {_GRID}",
        f"{_SIDES} {_DOTS} The black dot is q* = 1. At the same τ, m and χ₁ the curves are those of CReLU_{{τ,m}}.",
    ),
    Entry(
        "fig12",
        12,
        ("clipped_grids", "correlations_of_crelu"),
        "R(ρ) of CReLU over m and τ",
        "Correlation maps for CReLU_{τ,m} with (σ_w, σ_b) at and on either side of the EoC, for different τ and m. "
        f"{_GRID} {_MARKED}",
        _SIDES,
    ),
    Entry(
        "fig13",
        13,
        ("clipped_grids", "correlations_of_cst"),
        "R(ρ) of CST over m and τ",
        "Correlation maps for CST_{τ,m} with (σ_w, σ_b) at and on either side of the EoC, for different τ and m. "
        f"{_GRID} {_MARKED}",
        _SIDES,
    ),
    Entry(
        "fig14",
        14,
        ("loss_curves", "draw_from_source"),
        "loss curves of the second failure mode",
        "The loss curves during training for each of the 5 runs, for two activation function and hyperparameter "
        "configurations with high activation sparsity which achieve low test accuracy as a result of slow and/or "
        "unstable training. The legend shows the corresponding final test accuracy achieved by each model. "
        "(a) CST_{τ,m}, s = 0.85, m = 0.81. (b) CST_{τ,m}, s = 0.9, m = 0.76.",
        "The bold line is the running median of the recorded losses, which stand faintly behind it.",
    ),
    Entry(
        "odds",
        None,
        ("odds", "draw_odds"),
        "odds of failure over clip and depth, and the safe clip at several widths",
        "Odds of failure, that the gradient of a pair of initialisation and input explodes or vanishes, over clip m "
        "and depth, at width 300 and 85 % sparsity, for CReLU_{τ,m} and CST_{τ,m}. The lines are the frontier of the "
        "safe clip, right of which more than 1 % explode, at widths 100, 300 and 1000.",
    ),
    Entry(
        "bands",
        None,
        ("bands", "bands_of_q"),
        "measured q of real networks inside the predicted band",
        "Measured q^l of real random networks, 100 layers × 300 at 85 % sparsity, 12 initialisations seen from 8 "
        "digits each, and the band in which theory expects 99 % of the networks that train, at every layer at once. "
        "Left a clip that holds q; right one that lets it go, as predicted.",
    ),
    Entry(
        "speedup",
        None,
        ("speedup", "draw_from_source"),
        "speedup against sparsity",
        "How many times as fast as the fastest dense peer the sparse engine is, against sparsity. The dashed line is "
        "1/(1 − s), what counting zeros alone would promise.",
    ),
)

FIGURES = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> Entry:
    """The entry of a figure.

    Raises:
        ValueError: if there is none of that name.
    """
    if name not in FIGURES:
        raise ValueError(f"unknown figure {name!r}; there are {', '.join(FIGURES)}.")
    return FIGURES[name]


def draw(name: str, **sources: Any) -> "Figure":
    """The figure `name`."""
    return find(name).draw(**sources)
