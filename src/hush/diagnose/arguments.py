"""What a model is called with: a tensor, a tuple of arguments, or a dictionary of named ones, batch first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hush.nn.checks import check_inputs

__all__ = ["Arguments", "Inputs", "read_inputs"]

Inputs = Tensor | tuple[Tensor, ...] | Mapping[str, Any]


@dataclass(frozen=True)
class Arguments:
    """The arguments of a model, by place and by name.

    Attributes:
        count: how many inputs there are.
    """

    args: tuple[Tensor, ...]
    kwargs: dict[str, Any]
    count: int

    def part(self, start: int, stop: int) -> "Arguments":
        """Inputs `start` to `stop` of every tensor."""

        def cut(value: Any) -> Any:
            return value[start:stop] if isinstance(value, Tensor) else value

        stop = min(stop, self.count)
        named = {name: cut(value) for name, value in self.kwargs.items()}
        return Arguments(tuple(cut(x) for x in self.args), named, stop - start)

    def fresh(self) -> tuple["Arguments", list[Tensor]]:
        """Copies that take gradients, and these as leaves; what the model gets is a copy once more, so that one that
        begins in place does not write to a leaf."""
        leaves: list[Tensor] = []

        def copy(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            leaf = value.detach().clone().requires_grad_(value.is_floating_point())
            if leaf.requires_grad:
                leaves.append(leaf)
            return leaf.clone()

        named = {name: copy(value) for name, value in self.kwargs.items()}
        return Arguments(tuple(copy(x) for x in self.args), named, self.count), leaves


def read_inputs(model: nn.Module, inputs: Inputs) -> Arguments:
    """The arguments, once they are found to fit the model.

    Raises:
        ValueError: if there is no tensor, or one that is empty, constant, not finite or of another dtype or device, or
            the tensors differ in their number of inputs.
    """
    named: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        named = dict(inputs)
        given = check_inputs(model, tuple(value for value in named.values() if isinstance(value, Tensor)))
    else:
        given = check_inputs(model, inputs)
    count = given[0].shape[0]
    if any(x.shape[0] != count for x in given):
        lengths = ", ".join(str(x.shape[0]) for x in given)
        raise ValueError(f"every argument needs the same number of inputs, batch first, got {lengths}.")
    return Arguments(() if named else given, named, count)
