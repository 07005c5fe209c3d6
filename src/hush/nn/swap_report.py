"""What `swap_activations` did at every place that holds an activation, in words."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FunctionUse", "LeftActivation", "SwapReport", "Swapped"]


@dataclass(frozen=True)
class Swapped:
    """A place whose activation was replaced.

    Attributes:
        was: the class that was there, or the function.
        now: the module that is there now, as it prints.
        calls: how often the example's run called it; None without an example.
        note: what else there is to know, or "".
    """

    name: str
    was: str
    now: str
    calls: int | None = None
    note: str = ""


@dataclass(frozen=True)
class LeftActivation:
    """A place whose activation stayed as it was, and why."""

    name: str
    was: str
    reason: str


@dataclass(frozen=True)
class FunctionUse:
    """An activation that a forward applies as a function, which nothing can replace from outside.

    Attributes:
        place: the name of the module whose forward calls it; "" for the model itself.
        owner: the class of that module.
        calls: how often it was applied in the example's run.
    """

    place: str
    owner: str
    function: str
    calls: int


@dataclass(frozen=True)
class SwapReport:
    """Every activation of the model: swapped, left, or applied as a function.

    Attributes:
        functions: those found by running the example; None without one, when they could not be looked for.
        notes: what became of a Hugging Face configuration.
    """

    design: str
    swapped: tuple[Swapped, ...]
    left: tuple[LeftActivation, ...]
    functions: tuple[FunctionUse, ...] | None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        places = "1 place" if len(self.swapped) == 1 else f"{len(self.swapped)} places"
        lines = [f"Swapped the activation at {places} for {self.design}:", ""]
        lines += _table((s.name, f"{s.was} → {s.now}", s.note) for s in self.swapped)
        if self.left:
            lines += ["", "Left alone:", *_table((entry.name, entry.was, entry.reason) for entry in self.left)]
        return "\n".join([*lines, "", *_on_functions(self.functions), *self.notes, _NEXT])


_NEXT = "The weights were made for the activations before: hush.init_(model, design, example) draws them anew."


def _on_functions(functions: tuple[FunctionUse, ...] | None) -> list[str]:
    if functions is None:
        return ["Not looked for: activations that a forward applies as functions. An example finds them: example=x."]
    if not functions:
        return []
    rows = [
        (f"{use.owner}.forward", use.place or "the model itself", f"{use.function}, {_times(use.calls)}")
        for use in functions
    ]
    return [
        "Applied as functions, which cannot be swapped from outside; give the module an attribute such as "
        "self.act = nn.ReLU(), call self.act(x) in its forward, and swap again:",
        *_table(rows),
        "",
    ]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
