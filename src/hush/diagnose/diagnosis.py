"""The result: every layer and the residual stream, measured beside predicted, and a verdict; prints as tables."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hush.diagnose.layer_table import format_layers, format_stream
from hush.theory.training_rule import INDISTINGUISHABLE_ODDS, TRAINABLE_ODDS, BlockVerdict

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = ["Diagnosis", "Layer", "Range", "StreamPoint"]

Range = tuple[float, float]
# Deeper models print a selection of layers; .table(every=1) prints all.
_ROWS = 24


@dataclass(frozen=True)
class Layer:
    """One call of an activation: figures, and for each the band in which theory expects it (None: no prediction).

    Attributes:
        index, name: the layer's place, from 1, and the name of its activation module; of an activation applied as a
            function the module in which it was, and the function: layers.0.relu().
        reads: the Linear or convolution, or how many of them, whose output it reads.
        units: how many units, or channels.
        positions: how many values each channel has for one input: the size of the feature map; 1 after a Linear.
        q: median over the inputs of |h|²/N, with the share of inputs inside `q_band`.
        sparsity, saturated: shares of x = 0, and of x ≠ 0 with φ′ = 0.
        dead: the share of units that are 0 for every input.
        correlation: mean cosine between the h of two inputs; None for a single input.
        token_correlation: the same between two positions of one input; None where there is one position.
        …_predicted: what theory expects, in the middle of the band where there is one.
        gradient: root mean square over the inputs of |∂L/∂h|.
        gain_log10: median over the inputs of log10 |δ_l|²/|δ_L|², L the last layer.
    """

    index: int
    name: str
    activation: str
    reads: str
    units: int
    positions: int
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
    token_correlation: float | None = None
    q_predicted: float | None = None
    sparsity_predicted: float | None = None
    saturated_predicted: float | None = None
    correlation_predicted: float | None = None
    token_correlation_predicted: float | None = None
    gain_log10_predicted: float | None = None

    @property
    def leaves_band(self) -> bool | None:
        """Whether more than one input in five lies outside the band of q; None without a prediction."""
        return None if self.inside is None else self.inside < 0.8


@dataclass(frozen=True)
class StreamPoint:
    """The residual stream behind one sum; the figures are those of `Layer`, p = |x|²/N of the stream in place of q.

    Attributes:
        name: the module in which the branch is added.
        gain_log10: against the last sum.
    """

    index: int
    name: str
    p: float
    p_band: Range | None
    p_predicted: float | None
    correlation: float | None
    correlation_predicted: float | None
    token_correlation: float | None
    token_correlation_predicted: float | None
    gradient: float
    gain_log10: float
    gain_log10_band: Range | None
    gain_log10_predicted: float | None


@dataclass(frozen=True)
class Diagnosis:
    """A model measured layer by layer.

    Attributes:
        inputs: how many inputs were run.
        explode, vanish: the share of them whose gradient grows more than thirtyfold, or shrinks a thousandfold.
        predicted_explode, predicted_vanish: the same over initialisations and inputs, by theory.
        coverage: how many networks in a hundred keep to the bands: all layers at once in a plain chain, layer by layer
            in every other model.
        no_prediction: why there is none; empty if there is.
        stream: the residual stream, one point for every sum with a branch; empty where there is none.
        block_verdict: what the rule for networks of blocks says; None for a plain chain, which has its own.
        restarts: functions for which there is no rule, and where: behind each, the prediction starts again from what
            was measured there.
        predicted_indistinguishable: of a plain chain, the share of pairs of such inputs that networks of its kind
            cannot tell apart behind their last layer; None for any other model, or a single input.
        batch_statistics: whether BatchNorm took the statistics of each chunk, as in training.
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
    stream: tuple[StreamPoint, ...] = ()
    block_verdict: BlockVerdict | None = None
    restarts: tuple[str, ...] = ()
    batch_statistics: bool = False
    predicted_indistinguishable: float | None = None

    @property
    def first_outside(self) -> Layer | None:
        """The first layer that leaves its band; None if none does, or without a prediction."""
        return next((layer for layer in self.layers if layer.leaves_band), None)

    @property
    def sparsity(self) -> float:
        """The mean over the layers."""
        return sum(layer.sparsity for layer in self.layers) / len(self.layers)

    @property
    def trains(self) -> bool | None:
        """The calibrated rule of `hush.theory` on what was measured: for a plain chain that at most one input in ten
        goes astray and by theory at most every other pair of inputs is lost, for any other model
        `hush.theory.training_rule.judge_blocks`.

        None where neither speaks: no prediction, or a single input, of which no correlation is known.
        """
        if self.block_verdict is not None:
            return self.block_verdict.trains
        if self.layers[0].dead_predicted is None:
            # The rule for chains is for what the theory of chains has spoken of.
            return None
        if self.no_prediction:
            return None
        lost = self.predicted_indistinguishable
        told_apart = lost is None or lost <= INDISTINGUISHABLE_ODDS
        return max(self.explode, self.vanish) <= TRAINABLE_ODDS and told_apart

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: what is not finite becomes None."""
        first = self.first_outside
        fields = {
            **asdict(self),
            "first_outside": first and first.index,
            "sparsity": self.sparsity,
            "trains": self.trains,
        }
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
        from hush.diagnose.plot import plot_diagnosis

        return plot_diagnosis(self, path)

    def table(self, every: int = 1) -> str:
        """Measured figures, each with its band behind it; every `every`-th layer, and the first that leaves."""
        return format_layers(self.layers, self.first_outside, every)

    def stream_table(self, every: int = 1) -> str:
        """The same of the residual stream; empty where there is none."""
        return format_stream(self.stream, every) if self.stream else ""

    def __str__(self) -> str:
        every = -(-len(self.layers) // _ROWS)
        title = f"{self.model}, {self.inputs} inputs, gradient of {self.gradient_of}"
        if every > 1:
            title += f"; one in {every} of {len(self.layers)} layers, .table() has all"
        parts = [title, self.table(every)]
        if self.stream:
            parts.append(f"the stream, behind every sum\n{self.stream_table(-(-len(self.stream) // _ROWS))}")
        return "\n\n".join([*parts, self.verdict])


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
