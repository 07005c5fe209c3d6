"""Measured q of real random networks, layer by layer, inside the band that theory predicts."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hush._style import BLACK, BLUE, RED, name_of, panels, styled
from hush.theory import Band, Design, InputNorms, bands, design

__all__ = ["Measured", "bands_of_q", "draw_band", "measure"]

_SEEDS, _INPUTS = 12, 8
# A design that holds q, and one that lets it go.
_CASES = (("crelu", 0.85, 0.7), ("cst", 0.85, 0.9))
_WIDTH, _DEPTH = 300, 100


@dataclass(frozen=True, eq=False)
class Measured:
    """q of real networks, (paths, layers), a path being one initialisation seen from one input; and their band."""

    q: NDArray[np.float64]
    band: Band

    @property
    def stays(self) -> NDArray[np.bool_]:
        """Which paths are inside the band from the first layer to the last."""
        return np.all((self.q >= np.array(self.band.low)) & (self.q <= np.array(self.band.high)), axis=1)

    @property
    def inside(self) -> float:
        """Their share."""
        return float(self.stays.mean())


def measure(made: Design, seeds: int = _SEEDS, inputs: int = _INPUTS) -> Measured:
    """Initialise networks of the design with that many seeds, run digits through them and take |h|²/N of each layer."""
    import torch

    from hush.data import load
    from hush.nn import init_, mlp

    images = load("digits", variance=made.input_variance).train.images
    x = images[:inputs]
    paths = []
    for seed in range(seeds):
        model = mlp(images.shape[1], 10, made)
        init_(model, made, generator=torch.Generator().manual_seed(seed))
        h, squares = x, []
        with torch.no_grad():
            for name, module in model.named_children():
                h = module(h)
                if name.startswith("layer"):
                    squares.append(h.double().square().mean(1))
        paths.append(torch.stack(squares, 1).numpy())
    assert made.width is not None
    assert made.depth is not None
    squares_in = images.double().square().mean(1).numpy()
    expected = bands(
        made.phi(),
        made.sigma_w,
        made.sigma_b,
        made.width,
        made.depth,
        q_start=float(squares_in.mean()),
        norms=InputNorms.from_samples(squares_in),
    )
    return Measured(np.concatenate(paths), expected.q)


@styled
def bands_of_q() -> Figure:
    """Two designs at 85 % sparsity, 100 layers × 300: one whose q stays, one whose q runs away."""
    figure, axes = panels(1, 2, 3.4, sharex=True)
    for panel, (name, sparsity, v_prime) in zip(axes, _CASES, strict=True):
        made = design(name, sparsity, v_prime=v_prime, width=_WIDTH, depth=_DEPTH)
        measured = measure(made)
        draw_band(panel, measured)
        share = f"{round(measured.inside * len(measured.q))} of {len(measured.q)} paths stay inside"
        panel.set_title(rf"{name_of(name)}, $s={sparsity:g}$, $V'(q^*)={v_prime:g}$" + f"\n{share}")
        panel.set_xlabel("layer")
        panel.set_xlim(1, _DEPTH)
    axes[0].set_ylabel(r"$q^l=|h^l|^2/N$")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def draw_band(panel: Axes, measured: Measured) -> None:
    """The band, its median, and every path: blue if it stays inside, red if it ever leaves."""
    band = measured.band
    layer = np.arange(1, len(band.low) + 1)
    panel.fill_between(layer, band.low, band.high, color=BLACK, alpha=0.15, lw=0, label="99 % band")
    panel.plot(layer, band.median, color=BLACK, lw=1.2, ls="--", label="its median", zorder=4)
    for chosen, colour, word in (
        (measured.stays, BLUE, "a path that stays"),
        (~measured.stays, RED, "one that leaves"),
    ):
        for i, path in enumerate(measured.q[chosen]):
            panel.plot(layer, path, color=colour, lw=0.6, alpha=0.6, label=word if i == 0 else None)
