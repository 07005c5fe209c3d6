"""What an initialisation did, to every parameter, in words."""

from dataclasses import dataclass

__all__ = ["Drawn", "InitReport", "LeftAlone"]


@dataclass(frozen=True)
class Drawn:
    """A parameter that was drawn: its role, and the standard deviation of the draw (after calibration, if any)."""

    name: str
    shape: tuple[int, ...]
    role: str
    kind: str
    std: float


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
        scales: by layer, the factor `calibrate` multiplied its weight and bias with; empty without it.
        input_variance: what the variance of the inputs should be.
    """

    design: str
    order: str
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
        names = [*(entry.name for entry in self.drawn), *(entry.name for entry in self.left_alone)]
        name = max(map(len, names), default=0)
        shape = max((len(_shape(d.shape)) for d in self.drawn), default=0)
        lines = [f"Initialised for {self.design}; order of layers: {self.order}.", ""]
        lines += [f"{d.name:<{name}}  {_shape(d.shape):<{shape}}  {d.role:<6}  {_draw(d)}" for d in self.drawn]
        if self.left_alone:
            lines += ["", "Left alone:"]
            lines += [f"{entry.name:<{name}}  {entry.reason}" for entry in self.left_alone]
        if self.scales:
            low, high = min(self.scales.values()), max(self.scales.values())
            lines += ["", f"Calibrated: {len(self.scales)} layers scaled by {low:.3f} to {high:.3f}."]
        return "\n".join([*lines, "", *self.advice])


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in shape)


def _draw(drawn: Drawn) -> str:
    return "0" if drawn.std == 0.0 else f"{drawn.kind}, std {drawn.std:.4g}"
