"""Ways through the recorded graph: what a node is made of, what becomes of it, and which adds are residual.

Rearrangements, scales, norms, pooling, concatenation and adds of a constant or a parameter are passed through; layers,
activations, products, attention and adds that join two streams are where a way ends.
"""

from dataclasses import dataclass
from functools import cached_property

from hush.nn.graph.nodes import Graph, Node

__all__ = ["Arrival", "Join", "Paths"]

_PASSED = ("rearrange", "scale", "norm", "pool", "concat", "other")


@dataclass(frozen=True)
class Arrival:
    """Where a way from a node ends.

    Attributes:
        node: the node that was reached; None at the model's output.
        operand: which of its inputs the way came in by.
        norm: the first norm on the way.
        scale: the first scale by a parameter on the way, that is not a norm's own.
        factor: the product of the numbers it is multiplied with on the way, since the last norm.
    """

    node: int | None
    operand: int
    norm: int | None = None
    scale: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class Join:
    """An add of two streams.

    Attributes:
        stream: the operand that is older, or has fewer layers; None where neither is (a sum of equals).
        branch: the other operand.
        identity: whether the stream comes as it is, without a layer of its own since the branch parted from it.
        start: the node where the branch parted from the stream.
    """

    add: int
    stream: int | None
    branch: int
    identity: bool
    start: int


class Paths:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers = graph.readers()
        # By node the set of its ancestors, itself too, as the bits of a number.
        self._ancestors: list[int] = []
        for node in graph:
            bits = 1 << node.index
            for source in node.inputs:
                bits |= self._ancestors[source]
            self._ancestors.append(bits)
        self._layers = sum(1 << node.index for node in graph.of_kind("layer"))
        self._sources: dict[int, frozenset[int]] = {}

    def is_ancestor(self, older: int, node: int) -> bool:
        return bool(self._ancestors[node] >> older & 1)

    def sources(self, index: int) -> frozenset[int]:
        """Where the ways back from a node end; the node itself if it ends one."""
        if index not in self._sources:
            node = self.graph[index]
            if self._is_passed(node):
                found = frozenset[int]().union(*(self.sources(each) for each in node.inputs))
            else:
                found = frozenset({index})
            self._sources[index] = found
        return self._sources[index]

    def source_kinds(self, index: int) -> frozenset[str]:
        return frozenset(self.graph[each].kind for each in self.sources(index))

    def norm_before(self, index: int) -> int | None:
        """The norm whose output this is, but for rearrangements and the norm's own scale."""
        node = self.graph[index]
        while node.kind in ("rearrange", "scale") or (node.kind == "add" and len(node.inputs) == 1):
            if not node.inputs:
                return None
            node = self.graph[node.inputs[0]]
        return node.index if node.kind == "norm" else None

    def arrivals(self, index: int) -> list[Arrival]:
        """Where the ways forward from a node end."""
        found: dict[Arrival, None] = {}
        seen = set()
        open_ends: list[tuple[int, int | None, int | None, float]] = [(index, None, None, 1.0)]
        while open_ends:
            here, norm, scale, factor = state = open_ends.pop()
            if state in seen:
                continue
            seen.add(state)
            if here in self.graph.outputs:
                found[Arrival(None, 0, norm, scale, factor)] = None
            for reader in self.readers[here]:
                node = self.graph[reader]
                if self._is_passed(node):
                    own = node.kind == "scale" and node.options.get("parameter") and self.norm_before(here) is None
                    at_norm = reader if node.kind == "norm" and norm is None else norm
                    at_scale = reader if own and scale is None else scale
                    open_ends.append((reader, at_norm, at_scale, _times(factor, node)))
                else:
                    for operand, each in enumerate(node.inputs):
                        if each == here:
                            found[Arrival(reader, operand, norm, scale, factor)] = None
        return list(found)

    @cached_property
    def joins(self) -> dict[int, Join]:
        """The adds that join streams, by node."""
        return {node.index: self._join(node) for node in self.graph.of_kind("add") if not self._is_passed(node)}

    def _join(self, node: Node) -> Join:
        a, b = node.inputs[:2]
        if self.is_ancestor(a, b) or self.is_ancestor(b, a):
            stream, branch = (a, b) if self.is_ancestor(a, b) else (b, a)
            return Join(node.index, stream, branch, True, stream)
        only_a, only_b = self._ancestors[a] & ~self._ancestors[b], self._ancestors[b] & ~self._ancestors[a]
        in_a, in_b = (only_a & self._layers).bit_count(), (only_b & self._layers).bit_count()
        start = (self._ancestors[a] & self._ancestors[b]).bit_length() - 1
        if in_a == in_b:
            return Join(node.index, None, a, False, start)
        stream, branch = (a, b) if in_a < in_b else (b, a)
        return Join(node.index, stream, branch, min(in_a, in_b) == 0, start)

    def nodes_between(self, start: int, end: int) -> list[Node]:
        return [
            node
            for node in self.graph.nodes[start + 1 : end + 1]
            if self.is_ancestor(start, node.index) and self.is_ancestor(node.index, end)
        ]

    def _is_passed(self, node: Node) -> bool:
        if node.kind == "add":
            given = [each for each in dict.fromkeys(node.inputs) if self._from_input(each)]
            # Rotary embeddings add two parts of one layer; a table of positions comes from no input at all.
            return len(given) < 2 or len({self.sources(each) for each in given}) == 1
        if node.kind == "embedding":
            return False
        return node.kind in _PASSED and not node.options.get("recurrent") and bool(node.inputs)

    def _from_input(self, index: int) -> bool:
        bits = self._ancestors[index]
        return any(bits >> node.index & 1 for node in self.graph.of_kind("input"))


def _times(factor: float, node: Node) -> float:
    """The factor behind a node: a norm takes away what came before, and a parameter is no fixed number."""
    if node.kind == "norm":
        return 1.0
    if node.kind == "scale" and not node.options.get("parameter"):
        return factor * float(node.options["factor"])
    return factor
