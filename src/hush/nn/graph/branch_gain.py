"""By how much a squared gradient grows on its way back through a part of the graph, from what was measured in a run.

Summed over all entries, W multiplies it by σ² (weights of variance σ²/fan-in), φ by E[φ′²], a norm by γ² over what it
divides by. Attention counts as 1: it moves the values' gradient between positions.
"""

from collections.abc import Callable

from hush.nn.graph.nodes import Node
from hush.nn.graph.paths import Paths

__all__ = ["BranchGain"]


class BranchGain:
    """
    Attributes:
        sigma2: σ² of the layers that have been drawn, by node.
        gamma2: γ² of the norms that have been set.
    """

    def __init__(self, paths: Paths, slope: float) -> None:
        self.paths, self.slope = paths, slope
        self.sigma2: dict[int, float] = {}
        self.gamma2: dict[int, float] = {}

    def to(self, index: int, start: int, nodes: list[Node]) -> float:
        """The gain from `index` back to `start`; `nodes` holds what was measured in this run."""
        known: dict[int, float] = {start: 1.0}

        def gain(here: int) -> float:
            if here in known:
                return known[here]
            if here < start or not self.paths.is_ancestor(start, here):
                return 0.0
            known[here] = self._step(self.paths.graph[here], gain, nodes)
            return known[here]

        return gain(index)

    def before(self, start: int, nodes: list[Node]) -> float:
        """Where branch and shortcut part only behind φ(norm(x)): the gain from there back to the stream x; else 1."""
        graph = self.paths.graph
        node = graph[start]
        while node.kind == "rearrange" and node.inputs:
            node = graph[node.inputs[0]]
        if node.kind != "activation":
            return 1.0
        norm = self.paths.norm_before(node.inputs[0])
        return 1.0 if norm is None else self.slope * self._norm(graph[norm], nodes)

    def _step(self, node: Node, gain: Callable[[int], float], nodes: list[Node]) -> float:
        gains = [gain(each) for each in node.inputs]
        if node.kind == "layer":
            return self.sigma2.get(node.index, 1.0) * max(gains)
        if node.kind == "activation":
            return self.slope * max(gains)
        if node.kind == "norm":
            return self._norm(node, nodes) * max(gains)
        if node.kind == "scale":
            return float(node.options["factor"]) ** 2 * max(gains)
        if node.kind == "product" and len(gains) == 2:
            a, b = (nodes[each].second_moment for each in node.inputs)
            return gains[0] * b + gains[1] * a
        if node.kind == "add":
            return sum(gains)
        return max(gains, default=0.0)

    def _norm(self, node: Node, nodes: list[Node]) -> float:
        """γ²/v; γ² as it was set, else from what came out."""
        source, gamma2 = nodes[node.inputs[0]], self.gamma2.get(node.index, nodes[node.index].second_moment)
        if node.options["norm"] in ("batch", "instance"):
            return gamma2 * source.inverse_fluctuation
        return gamma2 / max(source.second_moment, 1e-300)
