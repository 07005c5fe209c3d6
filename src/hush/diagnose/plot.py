"""A diagnosis as a figure: what was measured as lines, where theory expects it as bands behind."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hush.diagnose.diagnosis import Diagnosis, Layer, Range

__all__ = ["check_plot_path", "plot_diagnosis"]


class _Panel(NamedTuple):
    """A figure of a layer, its band, what is expected of it, and how the axis is called."""

    value: Callable[["Layer"], float | None]
    band: Callable[["Layer"], "Range | None"]
    predicted: Callable[["Layer"], float | None]
    label: str
    may_be_log: bool = False


_PANELS = (
    _Panel(lambda layer: layer.q, lambda layer: layer.q_band, lambda layer: layer.q_predicted, "variance q", True),
    _Panel(
        lambda layer: layer.sparsity,
        lambda layer: layer.sparsity_band,
        lambda layer: layer.sparsity_predicted,
        "sparsity",
    ),
    _Panel(
        lambda layer: layer.correlation,
        lambda layer: layer.correlation_band,
        lambda layer: layer.correlation_predicted,
        "correlation",
    ),
    _Panel(
        lambda layer: layer.gain_log10,
        lambda layer: layer.gain_log10_band,
        lambda layer: layer.gain_log10_predicted,
        "log₁₀ gradient gain |δ_l|²/|δ_L|²",
    ),
)


def check_plot_path(path: str | Path) -> None:
    """Refuse, before any work is done, a file that could not be written afterwards.

    Raises:
        ValueError: if the folder does not exist, the path is a folder, or the ending is of no kind of picture.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to draw {path.name} into.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {path / 'diagnosis.png'}.")
    known = FigureCanvasBase.get_supported_filetypes()
    ending = path.suffix[1:].lower()
    if ending and ending not in known:
        raise ValueError(f"a picture cannot be written as .{ending}; use one of {', '.join(sorted(known))}.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written to: permission denied.")


def plot_diagnosis(diagnosis: "Diagnosis", path: str | Path | None = None) -> "Figure":
    """Four panels against depth: q, sparsity, correlation, gradient norm; saved if a path is given."""
    if path is not None:
        check_plot_path(path)
    # The figure is built without pyplot: no window, no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    index = [layer.index for layer in diagnosis.layers]
    outside = diagnosis.first_outside
    for axes, panel in zip(figure.subplots(2, 2, sharex=True).flat, _PANELS, strict=True):
        bands = [panel.band(layer) for layer in diagnosis.layers]
        if any(band is not None for band in bands):
            # A layer of which nothing is expected leaves a gap.
            low, high = ([math.nan if band is None else band[n] for band in bands] for n in (0, 1))
            axes.fill_between(index, low, high, alpha=0.2, lw=0, label="predicted")
        else:
            expected = [panel.predicted(layer) for layer in diagnosis.layers]
            if any(value is not None for value in expected):
                line = [math.nan if value is None else value for value in expected]
                axes.plot(index, line, lw=1, ls="--", color="tab:gray", label="predicted")
        # What is missing or not finite leaves a gap.
        found = [panel.value(layer) for layer in diagnosis.layers]
        values = [value if value is not None and math.isfinite(value) else math.nan for value in found]
        axes.plot(index, values, lw=1.5, label="measured")
        if outside is not None:
            axes.axvline(outside.index, color="tab:red", ls=":", lw=1, label="leaves its band")
        finite = [value for value in values if value > 0.0]
        if panel.may_be_log and finite and max(finite) > 50 * min(finite):
            axes.set_yscale("log")
        axes.set_ylabel(panel.label)
        axes.grid(alpha=0.25)
    for axes in figure.axes[2:]:
        axes.set_xlabel("layer")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.axes[2].legend(fontsize="small", loc="lower right")
    figure.suptitle(f"{diagnosis.model}, {diagnosis.inputs} inputs: sparsity {diagnosis.sparsity:.3f}")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
