"""What each weight layer of a recorded run is there for, and in which kind of block."""

from dataclasses import dataclass
from typing import Literal

from hush.nn.graph.nodes import Graph, Node
from hush.nn.graph.paths import Arrival, Join, Paths
from hush.theory import Activation

__all__ = ["LayerRole", "Role", "read_roles"]

Role = Literal[
    "feeds φ",
    "feeds another activation",
    "writes to the stream",
    "starts the stream",
    "shortcut",
    "query",
    "key",
    "value",
    "up",
    "feeds a layer",
    "output",
]


@dataclass(frozen=True)
class LayerRole:
    """One use of a weight, or of a range of its rows.

    Attributes:
        node: of the layer.
        rows: the features of its output that this is about; None for all.
        role: where they go.
        reads: what they are computed from: "normalised", "φ", "the stream", "the input", ….
        block: the kind of block the layer is in, in words.
        norm: the norm behind it on the way there; None for none.
        scale: the scale by a parameter on the way there.
        factor: the product of the numbers it is multiplied with on the way there: 1/√L in x + branch(x)/√L.
        join: the add that a writing or shortcut layer arrives at.
        post_activation: whether an activation reads that add directly, and nothing else does.
    """

    node: int
    rows: tuple[int, int] | None
    role: Role
    reads: str
    block: str
    norm: int | None = None
    scale: int | None = None
    join: Join | None = None
    post_activation: bool = False
    factor: float = 1.0


def read_roles(graph: Graph, phi: Activation) -> list[LayerRole]:
    """The roles of all layers, in the order of execution."""
    paths = Paths(graph)
    return [role for node in graph.of_kind("layer") for role in _roles_of(paths, node, phi)]


def _roles_of(paths: Paths, node: Node, phi: Activation) -> list[LayerRole]:
    reads = _what_it_reads(paths, node)
    arrivals = paths.arrivals(node.index)
    attention = [each for each in arrivals if each.node is not None and paths.graph[each.node].kind == "attention"]
    if attention:
        return _attention_roles(paths, node, reads, attention)
    role, arrival = min((_role_at(paths, each, phi) for each in arrivals), key=lambda each: _ORDER.index(each[0]))
    join, post = None, False
    if role in ("writes to the stream", "shortcut"):
        if arrival.node is None or arrival.node not in paths.joins:
            arrival = next(each for each in arrivals if each.node in paths.joins)
        assert arrival.node is not None
        join = paths.joins[arrival.node]
        behind = paths.arrivals(arrival.node)
        kinds = {None if each.node is None else paths.graph[each.node].kind for each in behind}
        post = kinds == {"activation"} and all(each.norm is None for each in behind)
    block = "outside the blocks" if role == "starts the stream" else _block(paths, node, join)
    return [LayerRole(node.index, None, role, reads, block, arrival.norm, arrival.scale, join, post, arrival.factor)]


# Where several hold, the one that binds its scale most.
_ORDER: tuple[Role, ...] = (
    "feeds φ",
    "writes to the stream",
    "shortcut",
    "starts the stream",
    "up",
    "feeds another activation",
    "feeds a layer",
    "output",
    "query",
    "key",
    "value",
)


def _role_at(paths: Paths, arrival: Arrival, phi: Activation) -> tuple[Role, Arrival]:
    if arrival.node is None:
        return "output", arrival
    node = paths.graph[arrival.node]
    if node.kind == "activation":
        return ("feeds φ" if node.phi == phi else "feeds another activation"), arrival
    if node.kind == "product":
        return "up", arrival
    if node.kind == "add":
        join = paths.joins[node.index]
        if join.stream is None:
            # A sum of equals: what becomes of the sum becomes of each.
            further = [_role_at(paths, each, phi) for each in paths.arrivals(node.index)]
            return min(further, key=lambda each: _ORDER.index(each[0])) if further else ("feeds a layer", arrival)
        if node.inputs[arrival.operand] == join.branch:
            return "writes to the stream", arrival
        return ("starts the stream" if join.identity else "shortcut"), arrival
    return "feeds a layer", arrival


def _attention_roles(paths: Paths, node: Node, reads: str, arrivals: list[Arrival]) -> list[LayerRole]:
    """Query, key and value; a joint matrix has one role for each range of rows."""
    names: tuple[Role, ...] = ("query", "key", "value")
    found: dict[tuple[Role, tuple[int, int] | None], LayerRole] = {}
    for arrival in arrivals:
        assert arrival.node is not None
        operand = paths.graph[paths.graph[arrival.node].inputs[arrival.operand]]
        rows = _rows_from(paths, operand, node)
        whole = rows is None or rows == (0, node.features)
        key = names[arrival.operand], None if whole else rows
        found[key] = LayerRole(node.index, key[1], key[0], reads, "attention", arrival.norm, arrival.scale)
    roles = list(found.values())
    if len(roles) > 1 and any(role.rows is None for role in roles):
        # Parts that could not be told apart, or one matrix for several: as a value, which binds most.
        return [LayerRole(node.index, None, "value", reads, "attention")]
    return roles


def _rows_from(paths: Paths, operand: Node, layer: Node) -> tuple[int, int] | None:
    """Which features of the layer an operand of attention is made of, through rotary embeddings and norms too."""
    here = operand
    while here.origin != layer.index:
        steps = [each for each in here.inputs if paths.is_ancestor(layer.index, each)]
        if not steps or here.index == layer.index:
            return None
        # The widest of the inputs: a rotary embedding also reads halves of it.
        here = max((paths.graph[each] for each in steps), key=lambda each: (each.features or 0, -each.index))
    return here.rows


def _what_it_reads(paths: Paths, node: Node) -> str:
    if not node.inputs:
        return "nothing that could be followed"
    if paths.norm_before(node.inputs[0]) is not None:
        return "normalised"
    names = {
        "activation": "φ",
        "add": "the stream",
        "input": "the input",
        "embedding": "an embedding",
        "product": "a gated product",
        "attention": "attention",
        "layer": "a layer",
        "other": "a recurrence",
    }
    return " + ".join(sorted({names.get(kind, kind) for kind in paths.source_kinds(node.inputs[0])}))


def _block(paths: Paths, node: Node, join: Join | None) -> str:
    """The kind of the innermost residual branch that the layer is in."""
    if join is None:
        inside = [
            each
            for each in paths.joins.values()
            if each.stream is not None
            and paths.is_ancestor(node.index, each.branch)
            and paths.is_ancestor(each.start, node.index)
            and each.start < node.index
        ]
        if not inside:
            return "outside the blocks"
        join = min(inside, key=lambda each: each.add)
    between = paths.nodes_between(join.start, join.branch)
    kinds = [each.kind for each in between]
    layers = [each for each in between if each.kind == "layer"]
    if "attention" in kinds:
        name = "attention"
    elif "product" in kinds:
        name = "gated"
    elif any(each.options.get("groups", 1) > 1 for each in layers):
        name = "block with grouped convolution"
    else:
        name = {1: "residual, one matrix", 2: "feed-forward"}.get(len(layers), f"residual, {len(layers)} matrices")
        if len(layers) == 3:
            name = "bottleneck"
    if join.identity and paths.norm_before(join.start) is not None and _is_normed(paths, join.add):
        return f"{name}, post-norm"
    first = next((each for each in between if each.kind in ("layer", "norm")), None)
    if first is not None and first.kind == "norm":
        return f"{name}, pre-norm"
    return f"{name}, {'norm inside' if 'norm' in kinds else 'no norm'}"


def _is_normed(paths: Paths, index: int) -> bool:
    """Whether norms are all that reads it."""
    readers = [paths.graph[each] for each in paths.readers[index]]
    return bool(readers) and all(
        each.kind == "norm" or (each.kind == "rearrange" and _is_normed(paths, each.index)) for each in readers
    )
