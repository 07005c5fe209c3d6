"""The result: every layer measured beside predicted, and a verdict; prints as a table."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = ["Diagnosis", "Layer"]

Range = tuple[float, float]
# Deeper models print a selection of layers; .table(every=1) prints all.
_ROWS = 24


@dataclass(frozen=True)
class Layer:
    """One call of an activation: figures, and for each the band in which theory expects it (None: no prediction).

    Attributes:
        index, name: the layer's place, from 1, and the name of its activation module.
        units: how many units, or channels.
        q: median over the inputs of |h|²/N, with the share of inputs inside `q_band`.
        sparsity, saturated: shares of x = 0, and of x ≠ 0 with φ′ = 0.
        dead: the share of units that are 0 for every input.
        correlation: mean cosine between the h of two inputs; None for a single input.
        gradient: root mean square over the inputs of |∂L/∂h|.
        gain_log10: median over the inputs of log10 |δ_l|²/|δ_L|², L the last layer.
    """

    index: int
    name: str
    activation: str
    units: int
    q: float
    q_band: Range | None
    inside: float | None
    sparsity: float
    sparsity_band: Range | None
    saturated: float
    saturated_band: Range | None
    dead: float
    dead_predicted: float | None
    correlation: float | None
    correlation_band: Range | None
    gradient: float
    gain_log10: float
    gain_log10_band: Range | None

    @property
    def leaves_band(self) -> bool | None:
        """Whether more than one input in five lies outside the band of q; None without a prediction."""
        return None if self.inside is None else self.inside < 0.8


@dataclass(frozen=True)
class Diagnosis:
    """A model measured layer by layer.

    Attributes:
        inputs: how many inputs were run.
        explode, vanish: the share of them whose gradient grows more than thirtyfold, or shrinks a thousandfold.
        predicted_explode, predicted_vanish: the same over initialisations and inputs, by theory.
        no_prediction: why there is none; empty if there is.
    """

    model: str
    inputs: int
    gradient_of: str
    layers: tuple[Layer, ...]
    explode: float
    vanish: float
    predicted_explode: float | None
    predicted_vanish: float | None
    coverage: float | None
    no_prediction: str
    verdict: str

    @property
    def first_outside(self) -> Layer | None:
        """The first layer that leaves its band; None if none does, or without a prediction."""
        return next((layer for layer in self.layers if layer.leaves_band), None)

    @property
    def sparsity(self) -> float:
        """The mean over the layers."""
        return sum(layer.sparsity for layer in self.layers) / len(self.layers)

    @property
    def trains(self) -> bool:
        """The calibrated rule of `hush.theory`, on the measured gradients: at most one input in ten goes astray."""
        from hush.theory.training_rule import TRAINABLE_ODDS

        return max(self.explode, self.vanish) <= TRAINABLE_ODDS

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: what is not finite becomes None."""
        first = self.first_outside
        fields = {**asdict(self), "first_outside": first and first.index, "sparsity": self.sparsity}
        return {name: _plain(value) for name, value in fields.items()}

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def to_dataframe(self) -> "pandas.DataFrame":
        """One row per layer; a band becomes two columns, …_low and …_high. Needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_dataframe needs pandas: pip install pandas.") from error
        rows = []
        for layer in self.layers:
            row: dict[str, Any] = {}
            for name, value in asdict(layer).items():
                if name.endswith("_band"):
                    row[f"{name[:-5]}_low"], row[f"{name[:-5]}_high"] = value or (math.nan, math.nan)
                else:
                    row[name] = math.nan if value is None else value
            rows.append(row)
        return pandas.DataFrame(rows).set_index("index")

    def plot(self, path: str | Path | None = None) -> "Figure":
        """q, sparsity, correlation and gradient norm against depth, bands behind; saved if a path is given."""
        from hush.diagnose.plot import plot

        return plot(self, path)

    def table(self, every: int = 1) -> str:
        """Measured figures, each with its band behind it; every `every`-th layer, and the first that leaves."""
        header = ("layer", "name", "q", "band", "inside", "sparsity", "band", "satur.", "dead", "corr.", "band")
        last = len(self.layers)
        rows = [(*header, "log10 gain", "band")]
        for layer in self.layers:
            leaves = layer is self.first_outside
            if (layer.index - 1) % every and layer.index != last and not leaves:
                continue
            rows.append(
                (
                    f"{'>' if leaves else ''}{layer.index}",
                    layer.name,
                    _number(layer.q),
                    _range(layer.q_band),
                    "" if layer.inside is None else f"{layer.inside:.0%}",
                    f"{layer.sparsity:.3f}",
                    _range(layer.sparsity_band),
                    f"{layer.saturated:.3f}",
                    f"{layer.dead:.3f}",
                    "" if layer.correlation is None else f"{layer.correlation:.3f}",
                    _range(layer.correlation_band),
                    _number(layer.gain_log10),
                    _range(layer.gain_log10_band),
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        right = {0, 2, 4, 5, 7, 8, 9, 11}
        lines = []
        for row in rows:
            cells = zip(row, widths, strict=True)
            lines.append("  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(cells)).rstrip())
        return "\n".join(lines)

    def __str__(self) -> str:
        every = -(-len(self.layers) // _ROWS)
        title = f"{self.model}, {self.inputs} inputs, gradient of {self.gradient_of}"
        if every > 1:
            title += f"; every {every}th of {len(self.layers)} layers, .table() has all"
        return "\n".join([title, "", self.table(every), "", self.verdict])


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


def _number(value: float) -> str:
    return f"{value:.2f}" if not math.isfinite(value) or abs(value) < 1e3 else f"{value:.1e}"


def _range(band: Range | None) -> str:
    return "" if band is None else f"{_number(band[0])}–{_number(band[1])}"
