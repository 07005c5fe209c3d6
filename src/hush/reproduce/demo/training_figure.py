"""The demo in one figure: accuracy and loss, zeros held and drifting, and the gradient before the first step."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hush._style import BLACK, BLUE, ORANGE, RED, panels, styled
from hush.reproduce.demo.network_rows import gradients_before_training
from hush.train import Run
from hush.train.tables import by_layer

__all__ = ["draw_training"]

_COLOURS = (BLACK, BLUE, ORANGE, RED)


@styled
def draw_training(runs: Mapping[str, Sequence[Run]], sparsity: float) -> Figure:
    """Four panels; a line for each seed, a colour for each network.

    Arguments:
        runs: the runs of each network by its name, in the order of `DemoNetworks`.
        sparsity: the target, drawn as a dashed line.
    """
    figure, (accuracy, loss, zeros, gradient) = panels(2, 2, 5.4)
    for (name, of_network), colour in zip(runs.items(), _COLOURS, strict=True):
        for n, run in enumerate(of_network):
            label = name if n == 0 else None
            _over_epochs(accuracy, run, "validation_accuracy", colour, label)
            _over_epochs(loss, run, "train_loss", colour, label)
            if run.config.architecture.residual and run.config.designed:
                _zeros(zeros, run, colour, label)
            norms = np.asarray(gradients_before_training(run))
            if norms.size and norms[-1] > 0.0:
                gradient.plot(np.arange(1, norms.size + 1), norms / norms[-1], color=colour, lw=1.2, label=label)
    accuracy.set(title="accuracy on held-out images", xlabel="epoch", ylim=(0.0, 1.02))
    loss.set(title="training loss", xlabel="epoch", yscale="log")
    zeros.axhline(sparsity, color=BLACK, ls="--", lw=0.9, zorder=1)
    zeros.set(title="share of zeros: mean, lowest and highest layer", xlabel="step")
    gradient.set(title="gradient before the first step, last layer = 1", xlabel="layer", yscale="log")
    for panel in (accuracy, loss, gradient):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    zeros.legend(loc="lower left")
    handles, labels = gradient.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def _over_epochs(panel: Axes, run: Run, column: str, colour: str, label: str | None) -> None:
    """A curve; of a run that came apart in its first epoch, a cross where it stood then."""
    values = run.metrics[column]
    if values.size:
        panel.plot(run.metrics["epoch"], values, color=colour, lw=1.2, label=label)
    elif column == "validation_accuracy" and run.result is not None:
        panel.plot([0], [run.result.test_accuracy], "x", color=colour, label=label, clip_on=False)


def _zeros(panel: Axes, run: Run, colour: str, label: str | None) -> None:
    steps, shares = by_layer(run.layers, "sparsity")
    panel.plot(steps, shares.mean(axis=1), color=colour, lw=1.2, label=label)
    panel.fill_between(steps, shares.min(axis=1), shares.max(axis=1), color=colour, alpha=0.15, lw=0)
