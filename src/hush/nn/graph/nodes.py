"""What the record of a run consists of: one node for each tensor that was made on the way from input to output."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from hush.theory import Activation

__all__ = ["Graph", "Kind", "Node"]

Kind = Literal[
    "input",
    "layer",  # Linear, a convolution, a matrix product with a parameter
    "embedding",
    "activation",
    "norm",
    "add",
    "product",  # of two things that come from the input: a gate, a matrix product of two streams
    "scale",  # by a number, a constant tensor or a parameter: LayerScale, 1/√d
    "attention",  # inputs in the order query, key, value
    "pool",
    "concat",
    "rearrange",
    "other",
]


@dataclass(frozen=True)
class Node:
    """One tensor of the run.

    Attributes:
        index: its place in the order of execution, and in `Graph.nodes`.
        kind: what made it.
        function: the name of the torch function, or of the module's class where that runs as one piece.
        within: the name of the innermost module that was running; "" for the model itself.
        layer: the name of the Linear or convolution module whose weight it uses; "" where there is none, as for
            `nn.MultiheadAttention`'s in_proj_weight or Hugging Face's Conv1D.
        parameters: the names of the parameters it uses, those of a weight first; also a part or a transpose counts.
        inputs: the nodes it reads, in the order of the arguments.
        shape: of the tensor.
        feature_axis: which axis counts features (channels, units), the others counting samples and positions; None
            where that was lost in a rearrangement.
        origin, rows: where it is a rearranged part of another node: that node, and from which feature up to which
            (exclusive) of it. Tells query, key and value of one joint matrix apart. None where it is not, or where the
            features are no range.
        mean, second_moment: of the tensor over all entries, in float64; nan for integers.
        fluctuation: the variance of one feature over samples and positions, averaged over the features: what BatchNorm
            divides by. It is less than the second moment by the square of each feature's own mean.
        inverse_fluctuation: the average over the features of 1/variance, by which BatchNorm multiplies a squared
            gradient; more than 1/fluctuation where the features differ.
        moves_only: whether it holds the values of its inputs and nothing new.
        reduces: whether it has fewer entries than the largest tensor it was made from.
        options: what else the theory needs, by kind:
            layer       op (linear, conv1d …), fan_in, groups, stride, padding, dilation, kernel, weight (its
                        parameter's name, "" where it is computed), bias ("" for none), weight_is_in_out (stored as
                        (in, out))
            activation  module (its name, "" for a function), phi (None where not known)
            norm        norm (batch, layer, rms, group, instance, other), eps, weight, bias (names, "" for none), groups
            add         constant (second moment of an added constant tensor or number), sign
            scale       factor (root mean square of what it is multiplied with), parameter (its name, or "")
            attention   causal, masked, factor (on the logits; None for 1/√d), logits (node, by hand)
            pool        kernel, stride
            concat      axis
            other       part_of: the node of the norm or attention written by hand of which this is a step
            embedding   weight
            input       argument (its number, or its keyword)
    """

    index: int
    kind: Kind
    function: str
    within: str
    layer: str
    parameters: tuple[str, ...]
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    feature_axis: int | None
    origin: int | None
    rows: tuple[int, int] | None
    mean: float
    second_moment: float
    fluctuation: float
    inverse_fluctuation: float
    moves_only: bool
    reduces: bool
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def features(self) -> int | None:
        return None if self.feature_axis is None else self.shape[self.feature_axis]

    @property
    def phi(self) -> Activation | None:
        """φ of an activation, where it is known."""
        return self.options.get("phi")


@dataclass(frozen=True)
class Graph:
    """One run of a model.

    Attributes:
        nodes: in the order of execution; every input of a node comes before it.
        outputs: the nodes that the model gives out.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def of_kind(self, *kinds: Kind) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind in kinds)

    def readers(self) -> tuple[tuple[int, ...], ...]:
        """Of each node the nodes that read it, in order."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for source in dict.fromkeys(node.inputs):
                found[source].append(node.index)
        return tuple(tuple(each) for each in found)
