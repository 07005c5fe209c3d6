"""What a model is called with: a tensor, a tuple of arguments, or a dictionary of named ones, batch first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hush.nn.checks import check_inputs

__all__ = ["Batch", "Inputs", "read_inputs"]

Inputs = Tensor | tuple[Tensor, ...] | Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """The arguments of a model, by place and by name.

    Attributes:
        count: how many inputs there are.
    """

    args: tuple[Tensor, ...]
    kwargs: dict[str, Any]
    count: int

    def part(self, start: int, stop: int) -> "Batch":
        """Inputs `start` to `stop` of every tensor."""

        def cut(value: Any) -> Any:
            return value[start:stop] if isinstance(value, Tensor) else value

        stop = min(stop, self.count)
        named = {name: cut(value) for name, value in self.kwargs.items()}
        return Batch(tuple(cut(x) for x in self.args), named, stop - start)

    def fresh(self) -> tuple["Batch", list[Tensor]]:
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
        return Batch(tuple(copy(x) for x in self.args), named, self.count), leaves


def read_inputs(model: nn.Module, inputs: Inputs) -> Batch:
    """The arguments, once they are found to fit the model.

    Raises:
        ValueError: if there is no tensor, or one that is empty, constant, not finite or of another dtype or device, or
            the tensors differ in their number of inputs.
    """
    # What a tokenizer gives is a mapping, and no dict.
    given = check_inputs(model, dict(inputs) if isinstance(inputs, Mapping) else inputs)
    named = given if isinstance(given, dict) else {}
    tensors = [x for x in (named.values() if named else given) if isinstance(x, Tensor)]
    count = tensors[0].shape[0]
    if any(x.shape[0] != count for x in tensors):
        lengths = ", ".join(str(x.shape[0]) for x in tensors)
        raise ValueError(f"every argument needs the same number of inputs, batch first, got {lengths}.")
    return Batch(given if isinstance(given, tuple) else (), named, count)
