"""The walk: the model runs once on an example, and beside every tensor goes the population that is expected of it.

Where there is no rule for a function, the prediction starts again from what was measured there, and that is noted.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from hush.diagnose.calls import LAYER_FUNCTIONS, Calls, function_name
from hush.diagnose.walk.backward import same
from hush.diagnose.walk.context import Context, UnruledError
from hush.diagnose.walk.dispatch import LAYERS, apply_rule
from hush.diagnose.walk.findings import Restart, Seen, Walk
from hush.diagnose.walk.functions import MATRIX_PRODUCTS, named
from hush.diagnose.walk.population import Population
from hush.diagnose.walk.rules_elementwise import Elementwise, elementwise
from hush.nn.flow import WEIGHT_LAYERS, layer_kind
from hush.nn.quiet_run import tensors_in
from hush.nn.recognise import phi_of, recognise
from hush.nn.torch_functions import FACTORIES, TABLES

__all__ = ["walk_model"]

_ATTENTIONS = named("multi_head_attention_forward")
# They ask for a shape or a property, and make no value.
_QUESTIONS = named("size", "dim", "numel", "is_floating_point", "__len__", "item", "tolist", "equal", "all", "any")


def walk_model(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], batch: int, whole: Any) -> Walk:
    """Run `model` on a few inputs; `whole` are all of them, from which the moments of the inputs are taken.

    The caller sees to the mode of the modules, and that nothing stays behind.
    """
    watch = _AlongTheRun(model, batch)
    watch.give(tree_leaves((args, kwargs)), tree_leaves(whole))
    with torch.no_grad(), watch.watching():
        output = model(*args, **kwargs)
    return watch.result(output)


class _AlongTheRun(Calls):
    def __init__(self, model: nn.Module, batch: int) -> None:
        super().__init__(model)
        self.context = Context(batch)
        make: Any = WeakTensorKeyDictionary  # which torch has not typed
        self._populations = make()
        self._identifiers = make()  # whole numbers that come from the input: tokens
        self._activations: list[Seen] = []
        self._sums: list[Seen] = []
        self._restarts: list[Restart] = []
        self._layers = 0
        self._pending: tuple[Population | None, Any, str] | None = None
        self._roots: dict[int, int] = {}  # node of φ(h) → number of the activation
        self._read: set[int] = set()
        self._operands: list[Population] = []
        self._layer_nodes: dict[int, str] = {}
        self._numbers: dict[int, int] = {}  # node of a layer's output → the layer's number

    def give(self, leaves: list[Any], whole: list[Any]) -> None:
        for leaf, full in zip(leaves, whole, strict=True):
            if not isinstance(leaf, Tensor):
                continue
            if not leaf.is_floating_point():
                self._identifiers[leaf] = True
            elif leaf.dim() > 1:
                axis = 1 if leaf.dim() >= 4 else -1
                start = self.context.measured(full, axis)
                part = self.context.fresh_sites(leaf, axis)
                self._populations[leaf] = replace(start, sites=part, measured=leaf)

    def result(self, output: Any) -> Walk:
        outputs: dict[int, float] = {}
        for tensor in tensors_in(output):
            population = self._populations.get(tensor)
            if population is not None:
                outputs[population.node] = outputs.get(population.node, 0.0) + tensor.numel() / tensor.shape[0]
        gradients = self.context.record.gradients(outputs)
        reach = self._reach()
        seen = tuple(replace(a, passes_on=a.number in reach) for a in self._activations)
        head = next((self._numbers[node] for node in outputs if node in self._numbers), 0)
        return Walk(
            self.context, seen, tuple(self._sums), tuple(self._restarts), gradients, head, dict(self._layer_nodes)
        )

    def _reach(self) -> set[int]:
        """The activations from which something goes on to a weight layer."""
        edges, found = self.context.record.edges, set()
        wanted = set(self._read)
        for node in range(len(edges) - 1, -1, -1):
            if node in wanted:
                wanted.update(edge.to for edge in edges[node])
        for node, number in self._roots.items():
            if node in wanted:
                found.add(number)
        return found

    # Activations.

    def before_activation(self, name: str, apply: Any, h: Tensor) -> None:
        self._pending = (self._populations.get(h), apply, name)

    def after_activation(self, x: Tensor) -> None:
        if self._pending is None:
            return
        (before, apply, name), self._pending = self._pending, None
        after = None
        if before is not None:
            try:
                after = elementwise(self.context, Elementwise(self._function(apply, x.dtype), (before,), {}), x)
            except (UnruledError, RuntimeError, ValueError) as error:
                after = self._restarted(x, before, name, str(error))
            self._populations[x] = after
            self._roots[after.node] = self.activations_seen
        module = isinstance(apply, nn.Module)
        phi = phi_of(apply) if module else apply.phi
        function = None if before is None else self._function(apply, x.dtype)
        seen = Seen(self.activations_seen, name, before, after, module, apply=function, phi=phi)
        self._activations.append(seen)

    @staticmethod
    def _function(apply: Any, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        if isinstance(apply, nn.Module):
            return _in(dtype, _on_draws(apply))
        return _in(dtype, getattr(apply, "on_draws", apply))

    # Everything else.

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        populations = [p for leaf in given if (p := self._populations.get(leaf)) is not None]
        identifiers = any(leaf in self._identifiers for leaf in given)
        self._operands = populations
        placed = tree_map(self._placed, (args, kwargs)) if populations else None
        result = func(*args, **kwargs)
        if func in FACTORIES or func in _QUESTIONS:
            return result
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if populations:
            self._follow(func, placed, populations, args, result, outputs)
        elif identifiers:
            for leaf in outputs:
                if not leaf.is_floating_point():
                    self._identifiers[leaf] = True
                elif func in TABLES and leaf.dim() > 1:
                    # A table looked up is the start of a stream, and its rows are what they are.
                    self._populations[leaf] = self.context.measured(leaf, -1)
        return result

    def _placed(self, leaf: Any) -> Any:
        population = self._populations.get(leaf) if isinstance(leaf, Tensor) else None
        return leaf if population is None else population

    def _follow(self, func: Any, placed: Any, given: list[Population], args: Any, result: Any, outputs: Any) -> None:
        values = [leaf for leaf in outputs if leaf.is_floating_point() and leaf.dim() > 0]
        if func is Tensor.__setitem__:
            values = [args[0]]
            self._restart_all(func, values, given, "an assignment to a part of a tensor")
            return
        if not values:
            return
        is_layer = func in _ATTENTIONS or (func in LAYERS and (func not in MATRIX_PRODUCTS or len(given) == 1))
        if is_layer:
            self._read.update(p.node for p in given)
        try:
            with torch.no_grad():
                found = apply_rule(self.context, func, placed[0], placed[1], result)
        except (UnruledError, RuntimeError, ValueError, IndexError, TypeError) as error:
            self._restart_all(func, values, given, str(error) or type(error).__name__)
            return
        for leaf, population in zip(values, found if isinstance(found, list) else [found], strict=False):
            if is_layer:
                self._layers += 1
                population = replace(population, layers=population.layers | (1 << self._layers))
                self._layer_nodes[population.node] = self._layer_name()
                self._numbers[population.node] = self.layers_seen if func in LAYER_FUNCTIONS else 0
            if population.sites.codes.shape != leaf.shape:
                self._restart_all(func, [leaf], given, "its result has a shape that the rule does not give")
                continue
            self._populations[leaf] = population

    def after_sum(self, number: int, name: str, total: Tensor) -> None:
        population = self._populations.get(total)
        # A branch has come through layers that the stream has not; two halves of a rotation have not.
        residual = len(self._operands) == 2 and self._operands[0].layers != self._operands[1].layers
        self._sums.append(Seen(number, name, population, module=False, passes_on=residual))

    def _layer_name(self) -> str:
        """layer1 Conv2d; a weight applied by a function goes by the module in which it was."""
        module = self.running[-1]
        name = self.names.get(module, "")
        return f"{name} {layer_kind(module)}" if isinstance(module, WEIGHT_LAYERS) else name or "a function"

    def after_module(self, module: nn.Module, output: Any) -> None:
        """A norm written by hand fixes |v|²/N; that shows in its output, whose rows all have the same norm."""
        weight = getattr(module, "weight", None)
        if next(module.children(), None) is not None or not isinstance(output, Tensor) or output.dim() < 2:
            return
        population = self._populations.get(output)
        if population is None or population.exact or not isinstance(weight, Tensor) or weight.dim() != 1:
            return
        if weight.shape != output.shape[-1:] or not bool((weight != 0).all()):
            return
        rows = (output / weight).double().flatten(0, -2).square().mean(1)
        if float(rows.std()) < 1e-3 * float(rows.mean()):
            self._populations[output] = replace(population, scale=self.context.nothing(), exact=True)

    # Where no rule speaks.

    def _restart_all(self, func: Any, values: list[Tensor], given: list[Population], reason: str) -> None:
        for leaf in values:
            if leaf.dim() > 1:
                self._populations[leaf] = self._restarted(leaf, given[0], function_name(func), reason)
            elif leaf in self._populations:
                del self._populations[leaf]

    def _restarted(self, value: Tensor, before: Population, function: str, reason: str) -> Population:
        """From what was measured; that the gradient goes through unchanged is an assumption."""
        self._restarts.append(Restart(function, self.within(), reason))
        image = before.sites.codes.dim() >= 4 and before.sites.varies(1)[0]
        axis = 1 if image and value.dim() >= 4 else -1
        return self.context.measured(value, axis, same(before.node), layers=before.layers)


def _on_draws(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A module's function of the draws of a population, which lie along the last axis.

    The draws are the units of one layer, wherever those are in the model; of the derivative of a size that they have in
    common each unit has the N-th part, and mean-field theory none.
    """
    found = recognise(module)
    if found is not None and found.entry.relative:
        kind = type(module)
        module = kind(**found.parameters, dim=-1, through_scale=False)
    return lambda values: type(module).forward(module, values)


def _in(dtype: torch.dtype, function: Any) -> Callable[[Tensor], Tensor]:
    """Values in float64 for everyone but a module whose parameters want another precision."""

    def apply(value: Tensor) -> Tensor:
        try:
            return function(value)  # type: ignore[no-any-return]
        except RuntimeError:
            return function(value.to(dtype)).to(value.dtype)  # type: ignore[no-any-return]

    return apply
