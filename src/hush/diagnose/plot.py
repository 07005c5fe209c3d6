"""A diagnosis as a figure: what was measured as lines, where theory expects it as bands behind."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hush.diagnose.diagnosis import Diagnosis

__all__ = ["plot"]

_PANELS = (
    ("q", "q", "variance q"),
    ("sparsity", "sparsity", "sparsity"),
    ("correlation", "correlation", "correlation"),
    ("gain_log10", "gain_log10", "log₁₀ gradient gain |δ_l|²/|δ_L|²"),
)


def plot(diagnosis: "Diagnosis", path: str | Path | None = None) -> "Figure":
    """Four panels against depth: q, sparsity, correlation, gradient norm."""
    # The figure is built without pyplot: no window, no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    index = [layer.index for layer in diagnosis.layers]
    outside = diagnosis.first_outside
    for axes, (name, band_name, label) in zip(figure.subplots(2, 2, sharex=True).flat, _PANELS, strict=True):
        bands = [getattr(layer, f"{band_name}_band") for layer in diagnosis.layers]
        if all(band is not None for band in bands):
            axes.fill_between(index, [b[0] for b in bands], [b[1] for b in bands], alpha=0.2, lw=0, label="predicted")
        values = [getattr(layer, name) for layer in diagnosis.layers]
        axes.plot(index, [float("nan") if v is None else v for v in values], lw=1.5, label="measured")
        if outside is not None:
            axes.axvline(outside.index, color="tab:red", ls=":", lw=1, label="leaves its band")
        if name == "q" and max(values) > 50 * max(min(values), 1e-300):
            axes.set_yscale("log")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
    for axes in figure.axes[2:]:
        axes.set_xlabel("layer")
    figure.axes[2].legend(fontsize="small", loc="lower right")
    figure.suptitle(f"{diagnosis.model}, {diagnosis.inputs} inputs: sparsity {diagnosis.sparsity:.3f}")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
