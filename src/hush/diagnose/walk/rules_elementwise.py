"""Functions that work entry by entry: activations, sums, products, gates, scales; whatever the function, draw by draw.

    D_a = D_out · E[(∂f/∂a)²],     X_a = X_out · E[∂f/∂a at i · ∂f/∂a at j]

The derivative is torch's own. A sum of a stream and its branch needs no rule of its own: both are draws of the same
units, so what they have in common shows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hush.diagnose.walk.backward import Edge
from hush.diagnose.walk.context import Context, UnruledError
from hush.diagnose.walk.functions import named
from hush.diagnose.walk.noise import blend
from hush.diagnose.walk.picking import pick
from hush.diagnose.walk.population import Population
from hush.diagnose.walk.sites import Sites

__all__ = ["Elementwise", "elementwise"]

_STEP = 1e-4
_PRODUCTS = named("mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply")
# So many standard deviations of a sample correlation are no correlation.
_ACCIDENT = 4.0


@dataclass(frozen=True)
class Elementwise:
    """The arguments of a call: populations where there are, else fixed numbers and tensors."""

    function: Callable[..., Tensor]
    arguments: Sequence[object]
    named: dict[str, object]


def elementwise(context: Context, call: Elementwise, output: Tensor) -> Population:
    """`output` is what the function gave; only its shape is used."""
    given = [a for a in call.arguments if isinstance(a, Population)]
    sites = _sites(given, output)
    aligned = {id(p): _aligned(context, p, sites) for p in given}
    fixed = {
        id(a): pick(a.detach().double() if a.is_floating_point() else a.detach(), sites)
        for a in (*call.arguments, *call.named.values())
        if isinstance(a, Tensor) and a.numel() > 1
    }

    def apply(values: dict[int, Tensor]) -> Tensor:
        def entry(a: object) -> object:
            if isinstance(a, Population):
                return values[id(a)]
            if isinstance(a, Tensor):
                return fixed[id(a)] if id(a) in fixed else a.detach().reshape(())
            return a

        named = {name: entry(a) for name, a in call.named.items() if name != "inplace"}
        return call.function(*(entry(a) for a in call.arguments), **named)

    with torch.enable_grad():
        leaves = {key: p.values.detach().clone().requires_grad_() for key, p in aligned.items()}
        # Times one, because a function that works in place refuses a leaf.
        result = apply({key: leaf * 1.0 for key, leaf in leaves.items()})
        if result.shape != next(iter(leaves.values())).shape:
            raise UnruledError("it does not work entry by entry")
        slopes = torch.autograd.grad(result.sum(), list(leaves.values()), allow_unused=True)
    values = result.detach()
    if call.function in _PRODUCTS and len(call.arguments) == 2:
        factors = [aligned[id(a)].values if isinstance(a, Population) else fixed.get(id(a)) for a in call.arguments]
        values = _as_independent(values, *factors)
    if not bool(torch.isfinite(values).all()) and not bool(torch.isinf(values).any()):
        raise UnruledError("the values expected there are not finite")
    with torch.no_grad():
        moved = _elasticities(apply, aligned, values)
    edges, parts = [], []
    for (key, population), slope in zip(aligned.items(), slopes, strict=True):
        parts.append((moved[key], population.scale))
        if slope is not None:
            edges.append(_edge(population, slope, len(sites.positions), sites))
    layers = 0
    for population in given:
        layers |= population.layers
    if len(given) > 1:
        context.draws.anchor(values)
    return Population(values, sites, context.record.new(*edges), blend(*parts), layers=layers)


def _as_independent(values: Tensor, a: Tensor | None, b: Tensor | None) -> Tensor:
    """A product, without what squares of independent factors have in common by accident of the sample."""
    if a is None or b is None or not a.is_floating_point() or not b.is_floating_point():
        return values
    one, two = a[0].square(), b[0].square()
    if not (float(one.std()) > 0.0 and float(two.std()) > 0.0):
        return values
    alike = float(((one - one.mean()) * (two - two.mean())).mean() / (one.std() * two.std()))
    found = float(values[0].square().mean())
    if not abs(alike) < _ACCIDENT / math.sqrt(len(one)) or not found > 0.0:
        return values
    return values * math.sqrt(float(one.mean() * two.mean()) / found)


def _sites(given: Sequence[Population], output: Tensor) -> Sites:
    """Those of the argument that has the shape of the output."""
    for population in given:
        if population.sites.codes.shape == output.shape:
            return population.sites
    for population in given:
        codes = population.sites.codes
        if codes.dim() == output.dim() and codes.shape[1:] == output.shape[1:]:
            return Sites(codes.expand(output.shape), population.sites.base)
    raise UnruledError("its arguments are spread over axes that none of them has")


def _aligned(context: Context, population: Population, sites: Sites) -> Population:
    """With the same axes for units as the rest."""
    codes = population.sites.codes
    for axis in range(-1, -1 - min(codes.dim(), sites.codes.dim()), -1):
        if sites.varies(axis) == (True, False) and population.sites.varies(axis) == (False, True):
            return context.swapped(population)
    return population


def _elasticities(
    apply: Callable[[dict[int, Tensor]], Tensor], aligned: dict[int, Population], values: Tensor
) -> dict[int, float]:
    """By how many per cent the second moment of the result goes when that of an argument goes by one."""
    before = float(values[0].square().mean())
    moved = {}
    for key in aligned:
        scaled = {k: p.values * (1.0 + 0.5 * _STEP if k == key else 1.0) for k, p in aligned.items()}
        after = float(apply(scaled)[0].square().mean())
        change = (after - before) / (before * _STEP) if before > 0.0 and math.isfinite(before) else 0.0
        moved[key] = change if math.isfinite(change) else 0.0
    return moved


def _edge(population: Population, slope: Tensor, positions: int, sites: Sites) -> Edge:
    squares = slope[0].square()
    mean = float(squares.mean())
    noise = float(squares.var() / squares.mean().square()) / max(1, len(sites.units)) if mean > 0.0 else 0.0
    slopes = slope[:2].to(torch.float32).numpy()
    if population.positions == 1 and positions > 1:
        # One value for all positions: its gradient is the sum of theirs.
        return Edge(population.node, ((1.0, 1.0), (0.0, 0.0)), noise, slopes)
    return Edge(population.node, ((1.0, 0.0), (0.0, 1.0)), noise, slopes)
