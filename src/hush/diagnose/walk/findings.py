"""What a walk along a run has found: the activations and sums on the way, and where it had to start anew."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from hush.diagnose.walk.backward import Gradients
from hush.diagnose.walk.context import Context
from hush.diagnose.walk.population import Population
from hush.theory import Activation

__all__ = ["Restart", "Seen", "Walk"]


@dataclass(frozen=True)
class Seen:
    """An activation, or a sum, with what is expected at it.

    Attributes:
        number: its place among all calls of its kind.
        name: of the module, or where the function was called.
        before: the population of h; of a sum, its result. None where none is known.
        after: the population of φ(h).
        module: whether it is a module and no function.
        passes_on: of an activation, whether a weight layer reads what came of it; of a sum, whether it adds a branch
            to a stream, which have come through different layers.
        apply: φ, on a tensor of float64.
        phi: what the registry knows of it, if anything.
    """

    number: int
    name: str
    before: Population | None
    after: Population | None = None
    module: bool = True
    passes_on: bool = False
    apply: Callable[[Tensor], Tensor] | None = None
    phi: Activation | None = None


@dataclass(frozen=True)
class Restart:
    """A function without a rule, from whose measured output the prediction went on."""

    function: str
    within: str
    reason: str


@dataclass(frozen=True)
class Walk:
    """What is expected, in the order of the run.

    Attributes:
        head: the number of the layer whose output the model gives out; 0 where something else comes last.
        layers: the nodes of the weight layers, and their names.
    """

    context: Context
    activations: tuple[Seen, ...]
    sums: tuple[Seen, ...]
    restarts: tuple[Restart, ...]
    gradients: Gradients
    head: int
    layers: dict[int, str]

    def reads(self, node: int) -> str:
        """The nearest weight layers behind a value: layer1, or: stem + 3 more."""
        found: list[str] = []
        waiting, visited = [node], {node}
        while waiting:
            here = waiting.pop(0)
            if here in self.layers:
                found.append(self.layers[here])
                continue
            for edge in self.context.record.edges[here]:
                if edge.to not in visited:
                    visited.add(edge.to)
                    waiting.append(edge.to)
        names = sorted(set(found))
        return "" if not names else f"{names[0]} + {len(names) - 1} more" if len(names) > 1 else names[0]
