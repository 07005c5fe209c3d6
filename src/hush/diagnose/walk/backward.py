"""The squared gradient, back over what was recorded: each value knows how it hands its gradient to what it was made of.

    D = Σ_i |δ_i|²  over the positions i of one input,        X = Σ_{i≠j} δ_i·δ_j

Weights are drawn independently of the gradient that arrives, so gradients of several readers add as squares. X is kept
because a mixing of positions (attention, a mean) hands on the sum of gradients, and not their squares.

Through elementwise functions the squared gradient is followed draw by draw: a unit that a rectifier has silenced is
silent for the one before it too. A weight layer gives all units the same share again.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hush.diagnose.walk.noise import Deviation, Sources, blend

__all__ = ["Edge", "Gradients", "Record", "same", "scaled"]

Matrix = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Edge:
    """From a value to one it was made of: (D, X) there = matrix · (D, X) here, with a relative variance.

    Attributes:
        slopes: of an elementwise function, its derivative at two positions for every draw; the matrix is then applied
            to what these leave of D and X.
        keeps: whether the draws there are the same units as here.
    """

    to: int
    matrix: Matrix
    noise: float = 0.0
    slopes: NDArray[np.float32] | None = None
    keeps: bool = False


def scaled(to: int, factor: float, across: float | None = None, noise: float = 0.0) -> Edge:
    """D by one factor, X by the same or another."""
    return Edge(to, ((factor, 0.0), (0.0, factor if across is None else across)), noise)


def same(to: int) -> Edge:
    """The same units, which hand on the same gradient."""
    return Edge(to, ((1.0, 0.0), (0.0, 1.0)), keeps=True)


@dataclass(frozen=True)
class Gradients:
    """D of every value, and its relative deviation."""

    squares: NDArray[np.float64]
    deviations: list[Deviation]

    def gain_log10(self, node: int, last: int) -> tuple[float, float] | None:
        """log10 D/D_last and its standard deviation; None where no gradient is expected to arrive."""
        here, there = float(self.squares[node]), float(self.squares[last])
        if not (here > 0.0 and there > 0.0 and math.isfinite(here) and math.isfinite(there)):
            return None
        difference = blend((1.0, self.deviations[node]), (-1.0, self.deviations[last]))
        return math.log10(here / there), float(np.linalg.norm(difference)) / math.log(10.0)


@dataclass
class Record:
    """The values in the order in which they were made, each with its edges."""

    edges: list[tuple[Edge, ...]] = field(default_factory=list)

    def new(self, *edges: Edge) -> int:
        self.edges.append(edges)
        return len(self.edges) - 1

    def gradients(self, outputs: dict[int, float]) -> Gradients:
        """From D at the outputs, with nothing common between their positions."""
        squares = np.zeros(len(self.edges))
        across = np.zeros(len(self.edges))
        deviations: list[Deviation] = [np.zeros(0)] * len(self.edges)
        # How the squared gradient is spread over the draws of a value, of mean 1; None for evenly.
        shares: dict[int, NDArray[np.float64]] = {}
        sources = Sources()
        for node, square in outputs.items():
            squares[node] += square
        for node in range(len(self.edges) - 1, -1, -1):
            share = shares.pop(node, None)
            if not squares[node] > 0.0:
                continue
            for edge in self.edges[node]:
                here, cross, handed = squares[node], across[node], share if edge.keeps else None
                if edge.slopes is not None:
                    one, two = edge.slopes[0].astype(np.float64), edge.slopes[1].astype(np.float64)
                    handed = one**2 if share is None else share * one**2
                    kept = float(handed.mean())
                    cross *= float((one * two if share is None else share * one * two).mean())
                    here *= kept
                    handed = handed / kept if kept > 0.0 else None
                (dd, dx), (xd, xx) = edge.matrix
                more = max(0.0, dd * here + dx * cross)
                total = squares[edge.to] + more
                if total > 0.0:
                    fresh = sources.new(edge.noise)
                    parts = (squares[edge.to] / total, deviations[edge.to]), (more / total, deviations[node])
                    deviations[edge.to] = blend(*parts, (more / total, fresh))
                    if handed is not None or edge.to in shares:
                        before = shares.get(edge.to, 1.0)
                        mine = 1.0 if handed is None else handed
                        shares[edge.to] = np.asarray((squares[edge.to] * before + more * mine) / total)
                squares[edge.to] = total
                across[edge.to] += xd * here + xx * cross
        return Gradients(squares, deviations)
