"""The recorded graph of one run of a model: every tensor that was made, by what, from which others."""

from hush.nn.graph.nodes import Graph, Kind, Node
from hush.nn.graph.patterns import trace_graph

__all__ = ["Graph", "Kind", "Node", "trace_graph"]
