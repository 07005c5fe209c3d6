"""Run a model once on an example and record every tensor that is made on the way: the one recorder that hush has.

Modules are followed by hooks and what happens between them by torch's own functions. A Linear, a convolution, an
activation and a recurrent module run as one piece; everything else is seen function by function. So reuse, residual
adds, and weights applied by function (`nn.MultiheadAttention`, Hugging Face's Conv1D) are seen. The order in which
modules were registered plays no part.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from hush.nn.flow import RECURRENT, WEIGHT_LAYERS, weight_layers
from hush.nn.graph.meaning import layer_module_options, meaning_of
from hush.nn.graph.nodes import Kind, Node
from hush.nn.graph.tensor_facts import (
    call_again,
    convolution_again,
    moments,
    plain_name,
    range_of,
    varying_axis,
)
from hush.nn.quiet_run import batch_statistics, call_on, quietly, tensors_in
from hush.nn.recognise import is_activation, phi_of
from hush.nn.torch_functions import CONVERSIONS, FACTORIES, LINEAR_MAPS, OPENED, REARRANGEMENTS, TABLES

__all__ = ["LayerUse", "Record", "record"]


class LayerUse(NamedTuple):
    """A layer that is about to run.

    Attributes:
        node: the index that its output will have.
        reads: the tensor it reads; None where that could not be told.
        weight, bias: the very tensors that it will use, views of a parameter where only a part of it is used.
        again: what the layer computes, without its bias, from another input and another weight of the same shapes.
        nodes: everything that was made so far in this run.
    """

    node: int
    reads: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    again: Callable[[Tensor, Tensor], Tensor]
    nodes: list[Node]


class Record(NamedTuple):
    """A run: its nodes, which of them are outputs, and the tensors themselves if they were asked for."""

    nodes: list[Node]
    outputs: tuple[int, ...]
    tensors: list[Tensor]


def record(
    model: nn.Module,
    example: Any,
    *,
    as_in_training: bool = True,
    before_layer: Callable[[LayerUse], None] | None = None,
    with_tensors: bool = False,
) -> Record:
    """Run `model` on `example` (a tensor, a tuple of arguments, a dictionary of keyword arguments) and watch.

    Arguments:
        as_in_training: BatchNorm by the statistics of the batch, as at the first step of training. All else, dropout
            too, is as in eval mode.
        before_layer: called each time a layer is about to run; it may change the weights.
        with_tensors: keep the tensor of each node, with its gradient to come.
    """
    recorder = _Recorder(model, before_layer, with_tensors)
    recorder.inputs(example)
    statistics = batch_statistics(model) if as_in_training else nullcontext()
    gradients = torch.enable_grad() if with_tensors else torch.no_grad()
    with quietly(model), statistics, gradients, recorder.hooks(), recorder:
        output = call_on(model, example)
    found = [recorder.node_of(tensor) for tensor in tensors_in(output)]
    return Record(recorder.nodes, tuple(dict.fromkeys(index for index in found if index is not None)), recorder.tensors)


class _Recorder(TorchFunctionMode):
    def __init__(
        self, model: nn.Module, before_layer: Callable[[LayerUse], None] | None, with_tensors: bool = False
    ) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []
        self._with_tensors = with_tensors
        self.nodes: list[Node] = []
        self._model, self._before_layer = model, before_layer
        self._modules = {module: name for name, module in model.named_modules()}
        self._running: list[nn.Module] = []
        self._in_one_piece = 0
        make: Any = WeakTensorKeyDictionary  # which torch has not typed
        self._index = make()  # tensors, and their nodes
        self._parameters = make()  # parameters and what is made of them alone, and their names
        self._constants = make()  # what was seen to be made of neither
        self._features = make()  # rearranged tensors: the node they are made of, and which feature each entry is
        for name, parameter in model.named_parameters():
            self._parameters[parameter] = (name,)
        self._layer_of_weight = make()
        for name, module in weight_layers(model).items():
            if isinstance(module.weight, nn.Parameter):
                self._layer_of_weight.setdefault(module.weight, name)
        self._layer_of_name = {}
        for name, parameter in model.named_parameters():
            if (layer := self._layer_of_weight.get(parameter)) is not None:
                self._layer_of_name[name] = layer

    def inputs(self, example: Any) -> None:
        named = (
            example
            if isinstance(example, dict)
            else dict(enumerate(example if isinstance(example, tuple) else (example,)))
        )
        for argument, value in named.items():
            for tensor in _tensors(value):
                axis = (1 if tensor.dim() > 3 else tensor.dim() - 1) if tensor.is_floating_point() else None
                self._add("input", "input", [tensor], {"argument": argument}, axis=axis)

    def node_of(self, tensor: Tensor) -> int | None:
        found: int | None = self._index.get(tensor)
        return found

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Hooks on every module, which also make an accelerated one run its plain layers."""
        handles = []
        for module in self._modules:
            handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            handles.append(module.register_forward_hook(self._after, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        with torch._C.DisableTorchFunction():  # what the recorder itself does is no part of the run
            self._enter(module, args, kwargs)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        with torch._C.DisableTorchFunction():
            self._leave(module, args, kwargs, output)

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._running.append(module)
        if _runs_in_one_piece(module):
            self._in_one_piece += 1
            if isinstance(module, WEIGHT_LAYERS) and self._before_layer is not None:
                read = next((each for each in _tensors((args, kwargs)) if each in self._index), None)
                bias: Any = module.bias
                again = F.linear if isinstance(module, nn.Linear) else convolution_again(module)
                self._before_layer(LayerUse(len(self.nodes), read, module.weight, bias, again, self.nodes))

    def _leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self._running.pop()
        read = [each for each in _tensors((args, kwargs)) if each in self._index]
        made = _tensors(output)
        if _runs_in_one_piece(module):
            self._in_one_piece -= 1
            self._running.append(module)  # so that the node is found within the module
            self._module_node(module, made, read)
            self._running.pop()
        elif lost := [each for each in made if not self._is_known(each)]:
            # What no torch function was seen to make (a custom kernel) comes from what the module was given.
            self._add("other", type(module).__name__, lost, {}, read)

    def _module_node(self, module: nn.Module, made: list[Tensor], read: list[Tensor]) -> None:
        name, kind = self._modules[module], type(module).__name__
        if isinstance(module, WEIGHT_LAYERS):
            parts = {part: getattr(module, part) for part in ("weight", "bias")}
            own = {part: None if value is None else self._parameters.get(value) for part, value in parts.items()}
            names = [each for found in own.values() if found for each in found]
            if not own["weight"]:
                prefix = f"{name}." if name else ""
                names = [f"{prefix}{inner}" for inner, _ in module.named_parameters()]
            options = layer_module_options(module) | {part: found[0] if found else "" for part, found in own.items()}
            layer = str(self._layer_of_weight.get(module.weight, name))
            behind = 1 if isinstance(module, nn.Linear) else module.weight.dim() - 1
            axis = made[0].dim() - behind
            self._add("layer", kind, made, options, read, names=tuple(names), layer=layer, axis=axis)
        elif is_activation(module):
            self._add("activation", kind, made, {"module": name, "phi": phi_of(module)}, read)
        else:
            prefix = f"{name}." if name else ""
            names = [f"{prefix}{inner}" for inner, _ in module.named_parameters()]
            self._add("other", kind, made, {"recurrent": True}, read, names=tuple(names))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._in_one_piece:
            return func(*args, **kwargs)
        if func in FACTORIES:
            result = func(*args, **kwargs)
            self._constants[result] = True
            return result
        if func in OPENED:
            with self:
                return OPENED[func](*args, **kwargs)
        given = _tensors((args, kwargs))
        named = {id(each): self._parameters[each] for each in given if each in self._parameters}
        read = [each for each in given if each in self._index]
        name = plain_name(func)
        names = tuple(dict.fromkeys(inner for each in named.values() for inner in each))
        if not read and not (named and func in TABLES):
            result = func(*args, **kwargs)
            for output in _tensors(result):
                if named and output not in self._index:
                    # A parameter alone, transposed or sliced: still that parameter.
                    self._parameters[output] = names
                else:
                    self._constants[output] = True
            return result
        if self._before_layer is not None and named and func in LINEAR_MAPS:
            weights = [each for each in given if id(each) in named]
            weight = max(weights, key=lambda each: each.dim())
            bias = next((each for each in weights if each is not weight), None)
            again = call_again(func, args, kwargs, read[0], weight, bias)
            self._before_layer(LayerUse(len(self.nodes), read[0], weight, bias, again, self.nodes))
        result = func(*args, **kwargs)
        # An assignment to a part of a tensor returns nothing, and changes its first argument.
        made = _tensors(args[0] if func is Tensor.__setitem__ else result)
        made = [each for each in made if each not in self._parameters]
        if not made:
            return result
        kind, options = meaning_of(func, name, args, kwargs, read, {key: value[0] for key, value in named.items()})
        if kind == "concat" and len(read) == 1 and made[0].numel() == read[0].numel():
            kind = "rearrange"  # joined with something empty, as with a cache of nothing yet
        weight_name = str(options.get("weight", ""))
        layer = self._layer_of_name.get(weight_name, "") if kind == "layer" else ""
        largest = max((each.numel() for each in given), default=0)
        features = self._rearranged(func, args, kwargs, read) if kind == "rearrange" else None
        for place, output in enumerate(made):
            axis = self._axis(kind, options, output, read)
            self._add(
                kind,
                name,
                [output],
                options,
                read,
                names=names,
                layer=layer,
                axis=axis,
                moves_only=func in REARRANGEMENTS,
                reduces=output.numel() < largest,
                features=None if features is None or place >= len(features[1]) else (features[0], features[1][place]),
            )
        return result

    def _add(
        self,
        kind: Kind,
        function: str,
        made: list[Tensor],
        options: dict[str, Any],
        read: list[Tensor] | tuple[()] = (),
        *,
        names: tuple[str, ...] = (),
        layer: str = "",
        axis: int | None = None,
        moves_only: bool = False,
        reduces: bool = False,
        features: tuple[int, Tensor] | None = None,
    ) -> None:
        inputs = tuple(self._index[each] for each in read)
        for tensor in made:
            origin, rows = None, None
            if features is not None and features[1].shape == tensor.shape:
                origin, rows = features[0], range_of(features[1])
                axis = varying_axis(features[1])
                self._features[tensor] = features
            elif axis is None and read:
                axis = self._inherited(tensor, read[0])
            if features is None and tensor in self._features:
                del self._features[tensor]  # overwritten in place
            mean, square, fluctuation, inverse = moments(tensor, axis)
            index = len(self.nodes)
            node = Node(
                *(index, kind, function, self._within(), layer, names, inputs, tuple(tensor.shape), axis, origin, rows),
                *(mean, square, fluctuation, inverse, moves_only, reduces, options),
            )
            self.nodes.append(node)
            self._index[tensor] = index
            if self._with_tensors:
                if tensor.requires_grad:
                    tensor.retain_grad()
                self.tensors.append(tensor)

    def _is_known(self, tensor: Tensor) -> bool:
        return tensor in self._index or tensor in self._parameters or tensor in self._constants

    def _within(self) -> str:
        return self._modules.get(self._running[-1], "") if self._running else ""

    def _axis(self, kind: Kind, options: dict[str, Any], output: Tensor, read: list[Tensor]) -> int | None:
        """Where a function puts the features; None to inherit it."""
        if kind == "layer":
            kernel = options.get("kernel")
            return output.dim() - 1 - (len(kernel) if kernel else 0)
        return output.dim() - 1 if kind == "embedding" else None

    def _inherited(self, tensor: Tensor, read: Tensor) -> int | None:
        """The axis of the features of what was read, if it is still there."""
        source: Node = self.nodes[self._index[read]]
        axis, features = source.feature_axis, source.features
        if axis is None or features is None or tensor.dim() == 0:
            return None
        if tensor.dim() == read.dim() or (axis < tensor.dim() and tensor.shape[axis] == features):
            return axis
        return int(tensor.dim()) - 1 if tensor.shape[-1] == features else None

    def _rearranged(self, func: Any, args: Any, kwargs: Any, read: list[Tensor]) -> tuple[int, list[Tensor]] | None:
        """Which feature of which node each entry of the result is: the same function, on the features' numbers."""
        if len(read) != 1 or func is Tensor.__setitem__:
            return None
        (source,) = read
        known = self._features.get(source)
        if known is None:
            node = self.nodes[self._index[source]]
            if node.feature_axis is None:
                return None
            shape = [1] * source.dim()
            shape[node.feature_axis] = -1
            numbers = torch.arange(source.shape[node.feature_axis], device=source.device)
            known = node.index, numbers.view(shape).expand(source.shape)
        if func in CONVERSIONS:
            return known[0], [known[1]]
        try:
            result = func(*tree_map(lambda each: known[1] if each is source else each, args), **kwargs)
        except (RuntimeError, TypeError, ValueError):
            return None
        # Joined with an empty tensor of floats, the numbers have become floats.
        return known[0], [each.long() for each in _tensors(result)]


def _runs_in_one_piece(module: nn.Module) -> bool:
    if isinstance(module, WEIGHT_LAYERS):
        # A layer with modules of its own inside (an adapter, say) is more than a layer.
        return all(name == "parametrizations" for name, _ in module.named_children())
    return is_activation(module) or isinstance(module, RECURRENT)


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
