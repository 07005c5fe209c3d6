"""Figure 5: gradient norms per layer over the first 15 steps of a run that fails."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hush._style import name_of, panels, stamp, styled
from hush.report.run_origin import describe_origins, origin_of_run
from hush.train.tables import FIRST_STEPS, Table, by_layer

if TYPE_CHECKING:
    from hush.train import Run, TrainConfig

__all__ = ["CASES", "draw_gradient_norms", "draw_short_runs", "failed_run"]


class Case(NamedTuple):
    """One of the two panels, both of 100 layers × 300 at s = 0.85."""

    activation: str
    v_prime: float


CASES = (Case("crelu", 0.9), Case("cst", 0.8))
_SEEDS = 5
_EXPLODED = 1e3
_BATCH = 64


def draw_short_runs(runs: str | Path = "runs", data: str = "digits") -> Figure:
    """Both panels from short runs on `data`, which are made below `runs` where they are not there yet.

    Whether a run fails is a matter of chance, so the first seed that does is shown.
    """
    shown, origins = [], []
    for letter, (activation, v_prime) in zip("ab", CASES, strict=True):
        run = failed_run(activation, v_prime, runs, data)
        plan = run.config.design()
        title = rf"({letter}) {name_of(activation)}: $s=0.85$, $m={plan.clip:.2f}$, $V'(q^*)={v_prime:g}$"
        shown.append((title, run.layers))
        origins.append(origin_of_run(run.directory))
    figure = draw_gradient_norms(shown)
    stamp(figure, describe_origins(origins))
    return figure


def failed_run(activation: str, v_prime: float, root: str | Path, data: str) -> "Run":
    """The first of the short runs with seeds 0 … 4 in which some layer's gradient norm passes 1000.

    Raises:
        ValueError: if none does.
    """
    from hush.train import train

    for seed in range(_SEEDS):
        run = train(_config(activation, v_prime, data, seed), root, progress=False, tensorboard=False)
        norms = _norms(run.layers)[1]
        if np.any(~np.isfinite(norms) | (norms > _EXPLODED)):
            return run
    raise ValueError(
        f"none of {_SEEDS} runs of {activation} at V′ = {v_prime:g} on {data} explodes within {FIRST_STEPS} steps."
    )


def _config(activation: str, v_prime: float, data: str, seed: int) -> "TrainConfig":
    """The paper's network and learning rate for exactly 15 steps."""
    from hush.train import TrainConfig

    return TrainConfig(
        data=data,
        activation=activation,
        sparsity=0.85,
        v_prime=v_prime,
        depth=100,
        width=300,
        lr=1e-4,
        warmup=0,
        batch=_BATCH,
        subset=_BATCH * FIRST_STEPS,
        epochs=1,
        engine="dense",
        seed=seed,
    )


def _norms(layers: Table) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(steps, |∂L/∂W| as steps × layers) of the first 15 steps; NaN where nothing was recorded."""
    early = layers["step"] < FIRST_STEPS
    return by_layer({name: values[early] for name, values in layers.items()}, "weight_gradient_norm")


@styled
def draw_gradient_norms(cases: Sequence[tuple[str, Table]]) -> Figure:
    """A panel for each (title, layers table of a run): a line for each step, dark to light.

    Raises:
        ValueError: if a table has no rows.
    """
    figure, axes = panels(1, len(cases), 3.1, sharey=True)
    scale = mpl.colors.Normalize(1, FIRST_STEPS)
    colours = mpl.colormaps["viridis"]
    for panel, (title, layers) in zip(axes, cases, strict=True):
        steps, norms = _norms(layers)
        if not steps.size:
            raise ValueError(f"the run of panel {title} recorded no gradients.")
        layer = np.arange(1, norms.shape[1] + 1)
        # On a logarithmic scale a norm of exactly 0, of a layer that is silent, has no place.
        shown = np.where(np.isfinite(norms) & (norms > 0.0), norms, np.nan)
        for step, row in zip(steps, shown, strict=True):
            panel.plot(layer, row, color=colours(scale(step + 1)), lw=1.2)
        panel.set_yscale("log")
        panel.set_title(title, fontsize=8.5)
        panel.set_xlabel("layer")
    axes[0].set_ylabel(r"gradient norm $\|\partial L/\partial W^l\|$")
    bar = figure.colorbar(mpl.cm.ScalarMappable(scale, colours), ax=list(axes), label="step", ticks=[1, 5, 10, 15])
    bar.ax.minorticks_off()
    return figure
