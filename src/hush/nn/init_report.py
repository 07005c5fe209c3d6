"""What an initialisation did, to every parameter, in words."""

from dataclasses import dataclass

__all__ = ["Drawn", "InitReport", "LeftAlone"]


@dataclass(frozen=True)
class Drawn:
    """A parameter that was drawn, and what it was taken for.

    Attributes:
        layer: the class of its layer, with the kernel of a convolution: "Linear", "Conv2d 3×3".
        role: "first", "hidden" or "output" in a chain; elsewhere what it is there for: "feeds φ", "writes to the
            stream", "query", ….
        reads: what the layer reads, as the data flow showed it; empty where that was not seen.
        kind: how it was drawn.
        std: the standard deviation of the draw, after calibration if there was one.
        block: the kind of block the layer was taken to be in; empty in a chain.
    """

    name: str
    shape: tuple[int, ...]
    layer: str
    role: str
    reads: str
    kind: str
    std: float
    block: str = ""


@dataclass(frozen=True)
class LeftAlone:
    """A parameter that was not touched, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class InitReport:
    """Every parameter of the model, drawn or left alone, and advice.

    Attributes:
        order: "data flow" when an example was given, else "registration".
        structure: what the model was taken for, and on what grounds.
        scales: by layer, the factor `calibrate` multiplied its weight and bias with; empty without it.
        input_variance: what the variance of the inputs should be.
    """

    design: str
    order: str
    structure: str
    drawn: tuple[Drawn, ...]
    left_alone: tuple[LeftAlone, ...]
    scales: dict[str, float]
    input_variance: float
    advice: tuple[str, ...]

    @property
    def first(self) -> tuple[str, ...]:
        """The weights that were drawn as first layers."""
        return tuple(d.name for d in self.drawn if d.role == "first" and len(d.shape) > 1)

    def __str__(self) -> str:
        rows = [(d.name, _shape(d.shape), d.layer, _taken_for(d), _draw(d)) for d in self.drawn]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"Initialised for {self.design}. {self.structure}", ""]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        if self.left_alone:
            name = max(len(entry.name) for entry in self.left_alone)
            lines += ["", "Left alone:"]
            lines += [f"{entry.name:<{name}}  {entry.reason}" for entry in self.left_alone]
        if self.scales:
            low, high = min(self.scales.values()), max(self.scales.values())
            lines += ["", f"Calibrated: {len(self.scales)} layers scaled by {low:.3f} to {high:.3f}."]
        return "\n".join([*lines, "", *self.advice])


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in shape)


def _taken_for(drawn: Drawn) -> str:
    text = f"{drawn.role}, reads {drawn.reads}" if drawn.reads else drawn.role
    return f"{drawn.block}: {text}" if drawn.block else text


def _draw(drawn: Drawn) -> str:
    if drawn.kind.startswith("set to"):
        return drawn.kind
    return "0" if drawn.std == 0.0 else f"{drawn.kind}, std {drawn.std:.4g}"
