"""Follows a model while it runs: which module is at work, and every activation and every sum, module or function.

Both passes over a model, the one that measures and the one that predicts, count activations and sums in the same way,
so the n-th of one is the n-th of the other.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hush.diagnose.elementwise_modules import activation_modules
from hush.nn import functional
from hush.nn.recognise import phi_of_function
from hush.nn.torch_functions import ELEMENTWISE_ACTIVATIONS
from hush.theory import Activation, Relative

__all__ = ["ACTIVATION_FUNCTIONS", "LAYER_FUNCTIONS", "SUMS", "Calls", "first_tensor", "function_name"]

ACTIVATION_FUNCTIONS = ELEMENTWISE_ACTIVATIONS | {getattr(functional, name) for name in functional.__all__}
SUMS = frozenset({torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__iadd__, Tensor.__radd__})
# What applies a weight, and the axis on which its units are.
LAYER_FUNCTIONS: dict[Any, int] = {
    torch.nn.functional.linear: -1,
    torch.addmm: -1,
    torch.conv1d: 1,
    torch.conv2d: 1,
    torch.conv3d: 1,
    torch.conv_transpose1d: 1,
    torch.conv_transpose2d: 1,
    torch.conv_transpose3d: 1,
}


class Calls(TorchFunctionMode):
    """While open, tells its methods of every activation and every sum of two values of the same shape.

    Attributes:
        modules: the activation modules, with their names.
        names: the names of all modules.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.modules = activation_modules(model)
        self.names = {module: name for name, module in model.named_modules()}
        self.activations_seen = 0
        self.sums_seen = 0
        self.layers_seen = 0
        self.running: list[nn.Module] = []
        self._acting = 0
        self._handles: list[Any] = []

    # What a subclass does with it.

    def begin(self) -> None:
        """A forward pass of the model begins."""

    def before_activation(self, name: str, apply: Any, h: Tensor) -> None:
        """`apply` is the module, or the function with its other arguments; h is what goes in."""

    def after_activation(self, x: Tensor) -> None:
        """What came out of the activation that was announced last."""

    def before_module(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Any other module, and what it is given."""

    def before_layer(self, number: int, unit_axis: int, x: Tensor) -> None:
        """The n-th time a weight is applied, by a module or a function, and what is read."""

    def after_module(self, module: nn.Module, output: Any) -> None:
        """Any other module, and what it gave out."""

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A torch function that is no activation, outside of activations."""
        return func(*args, **kwargs)

    def after_sum(self, number: int, name: str, total: Tensor) -> None:
        """The n-th sum of two values of the same shape, and the module in which it was made."""

    # How it is followed.

    def open(self) -> None:
        # Hooks that take no keywords: one that is removed while the model's hooks run is called once more, as such.
        self._handles.append(self.model.register_forward_pre_hook(lambda *_: self.start()))
        self._handles.append(self.model.register_forward_hook(lambda *_: self.running.clear()))
        for module in self.model.modules():
            if module is self.model:
                continue
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after, with_kwargs=True))
        enter: Any = super().__enter__  # which torch has not typed
        enter()

    def close(self) -> None:
        leave: Any = super().__exit__
        leave(None, None, None)
        for handle in self._handles:
            handle.remove()
        self._handles, self.running, self._acting = [], [], 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        self.open()
        try:
            yield
        finally:
            self.close()

    def start(self) -> None:
        """A new pass begins; called by itself when the hooks were there before the pass."""
        self.activations_seen, self.sums_seen, self.layers_seen, self._acting = 0, 0, 0, 0
        self.running = [self.model]
        self.begin()

    def within(self) -> str:
        """The name of the innermost module that is running, "" for the model itself."""
        return self.names.get(self.running[-1], "") if self.running else ""

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.running.append(module)
        if module in self.modules:
            self._acting += 1
            if self._acting == 1:
                self.activations_seen += 1
                self.before_activation(self.modules[module], module, first_tensor(args, kwargs))
        elif not self._acting:
            self.before_module(module, args, kwargs)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if module in self.modules:
            if isinstance(output, Tensor) and self._acting == 1:
                self.after_activation(output)
            self._acting -= 1
        elif not self._acting and output is not None:
            # What is done with it there is no part of the model's run.
            self._acting += 1
            self.after_module(module, output)
            self._acting -= 1
        if self.running:
            self.running.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.running or self._acting:
            return func(*args, **kwargs)
        if func in ACTIVATION_FUNCTIONS and _is_value(h := first_tensor(args, kwargs)):
            return self._activation(func, h, args, kwargs)
        if func in SUMS and len(args) > 1 and _is_value(args[0]) and _is_value(args[1]):
            result = self.call(func, args, kwargs)
            if args[0].shape == args[1].shape:
                self.sums_seen += 1
                self.after_sum(self.sums_seen, self.within(), result)
            return result
        if func in LAYER_FUNCTIONS:
            x = first_tensor(args, kwargs) if func is not torch.addmm else args[1]
            self.layers_seen += 1
            self.before_layer(self.layers_seen, LAYER_FUNCTIONS[func], x)
        return self.call(func, args, kwargs)

    def _activation(self, func: Any, h: Tensor, args: Any, kwargs: Any) -> Any:
        within = self.within()
        self.activations_seen += 1

        def apply(value: Tensor) -> Any:
            if args:
                return func(value, *args[1:], **{name: v for name, v in kwargs.items() if name != "inplace"})
            key = next(iter(kwargs))
            return func(**{**kwargs, key: value})

        name = function_name(func)
        apply.label = f"{name}()"  # type: ignore[attr-defined]
        apply.phi = _phi(func, args, kwargs)  # type: ignore[attr-defined]
        if isinstance(apply.phi, Relative):  # type: ignore[attr-defined]
            # As on the draws of a population: units last, their common size a constant.
            plain = {**kwargs, "dim": -1, "through_scale": False}
            apply.on_draws = lambda value: func(value, *args[1:], **plain)  # type: ignore[attr-defined]
        self.before_activation(f"{within}.{name}()" if within else f"{name}()", apply, h)
        result = func(*args, **kwargs)
        self.after_activation(result)
        return result


def first_tensor(args: Any, kwargs: Any) -> Any:
    return args[0] if args else next(iter(kwargs.values()), None)


def function_name(func: Any) -> str:
    return str(getattr(func, "__name__", func)).strip("_")


def _phi(func: Any, args: Any, kwargs: Any) -> Activation | None:
    """φ of a function of hush, which tells where it saturates; None for others."""
    known: Callable[..., Any] | None = getattr(functional, function_name(func), None)
    if known is None or known is not func:
        return None
    return phi_of_function(function_name(func), inspect.signature(known).bind(*args, **kwargs).arguments)


def _is_value(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 1
