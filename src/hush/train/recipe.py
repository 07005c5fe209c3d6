"""How a network is trained unless told otherwise: optimizer, rate, schedule, warm-up, batch and epochs that fit its
data set and its depth.

The theory says whether a network can train, not at which rate. The rates here were found by measuring; what came of
them is in `MEASURED`, which `python benchmarks/recipes.py` prints anew.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hush.data.catalogue import CATALOGUE
from hush.train.architectures import ARCHITECTURES

__all__ = ["MEASURED", "Measured", "Recipe", "expectation", "recipe_for", "steps_of_an_epoch"]

# Up to this depth SGD trains in half the time; deeper its rate has hardly any room between standing still and coming
# apart, and AdamW learns where SGD does not.
_SGD_UP_TO = 30
# From this depth on, where a rate for them is known, centred gradients and a linear start are further after two epochs
# than SGD is after six. Shallower chains have not been tried.
_CENTERED_FROM = 30
# From this depth on, or with fewer active units a layer than this, the start is also even, and the head learns at so
# many times the rate of the layers. After four epochs chains of 100 layers gain up to 0.15 by it, those of 50 about
# 0.006, and 30 layers with 15 active units up to 0.15. With 30 and more of them 30 layers gain at most 0.01, and a CST
# with V′ = 0.9 that trains without it comes apart.
_EVEN_FROM = 50
_FEW_ACTIVE = 30
_HEAD_RATE = 10.0
# The share of all steps over which the rate rises from 0.
_WARMUP_SHARE = 0.1


@dataclass(frozen=True)
class _Rates:
    """Of one data set.

    Attributes:
        sgd: (c, most): the rate of SGD is c / depth, and at most so much.
        adamw: (c, most): the rate of AdamW is c / depth², and at most so much.
        centered: (c, most): the rate of AdamW with centred gradients is c / depth, and at most so much; None where
            that has not been measured, and gradients are not centred unless asked for.
        batch: up to the depth to which SGD is taken, and beyond.
        epochs: (depth, epochs) up to that depth, in rising order.
    """

    sgd: tuple[float, float]
    adamw: tuple[float, float]
    batch: tuple[int, int]
    epochs: tuple[tuple[float, int], ...]
    centered: tuple[float, float] | None = None


_SMALL = _Rates(sgd=(0.15, 3e-2), adamw=(0.45, 3e-4), batch=(32, 32), epochs=((10, 40), (50, 60), (math.inf, 100)))
_LARGE = _Rates(
    sgd=(0.09, 1e-2),
    adamw=(0.5, 3e-4),
    batch=(32, 128),
    epochs=((30, 6), (math.inf, 12)),
    # A step of AdamW changes what a layer makes of the differences between inputs by about width · lr of it, and depth
    # layers do so at once.
    centered=(1e-2, 3e-4),
)
_RATES = {"digits": _SMALL, "mnist": _LARGE, "fashion_mnist": _LARGE, "cifar10": _LARGE}
# A stream passes the gradient on whatever the depth, so one rate of AdamW serves all depths: (rate, batch, epochs).
_RESIDUAL = {"digits": (1e-3, 64, 20), "text": (2e-3, 24, 5)}
_SGD_OF_STREAM = 3e-2
_RESIDUAL |= dict.fromkeys(("mnist", "fashion_mnist", "cifar10"), (1e-3, 128, 3))


@dataclass(frozen=True)
class Recipe:
    """What `TrainConfig` takes for the fields of the same names that were not given."""

    optimizer: str
    lr: float
    schedule: str
    warmup: int
    batch: int
    epochs: int
    center: bool
    start: str
    head_rate: float


@dataclass(frozen=True)
class Measured:
    """What a recipe came to on a network of 300 units a layer, 85 % zeros, with the clip that hush chose.

    Attributes:
        accuracies: on the test set, one for each seed from 0 on.
    """

    data: str
    activation: str
    depth: int
    epochs: int
    accuracies: tuple[float, ...]

    def __str__(self) -> str:
        low, high = min(self.accuracies), max(self.accuracies)
        span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
        seeds = "1 seed" if len(self.accuracies) == 1 else f"{len(self.accuracies)} seeds"
        return (
            f"{self.depth} layers of 300 units, {self.activation} with 85 % zeros, {self.epochs} epochs "
            f"on {self.data}: test accuracy {span} ({seeds})"
        )


MEASURED: tuple[Measured, ...] = (
    Measured("digits", "crelu", 10, 40, (0.944, 0.953, 0.964)),
    Measured("digits", "crelu", 30, 60, (0.897, 0.917, 0.867)),
    Measured("digits", "crelu", 50, 60, (0.817, 0.644, 0.675)),
    Measured("digits", "crelu", 100, 100, (0.281,)),
    Measured("mnist", "crelu", 30, 6, (0.968, 0.966, 0.958)),
    Measured("mnist", "crelu", 100, 12, (0.965,)),
)


def steps_of_an_epoch(data: str, batch: int, validation: float, subset: int | None, devices: int) -> int:
    """How many batches the images to learn from make; as `EpochBatches` cuts them."""
    count = CATALOGUE[data].train
    count = subset or count - round(validation * count)
    return -(-(count - count % devices) // batch)


def recipe_for(
    arch: str,
    data: str,
    depth: int,
    given: dict[str, Any],
    steps_of_an_epoch: Callable[[int], int],
    *,
    momentum: float = 0.0,
    active: float = math.inf,
) -> Recipe:
    """The recipe of a network; what is `given` stays, and decides the rest where that depends on it.

    Arguments:
        steps_of_an_epoch: from a batch size to the number of batches.
        active: units of a layer that are not zero, on average.
    """
    center, start, head_rate = given.get("center"), given.get("start"), 1.0
    if ARCHITECTURES[arch].residual:
        optimizer, rate, usual_batch, usual_epochs = _for_stream(data, given.get("optimizer"), momentum)
    else:
        deep = arch == "mlp" and depth >= _CENTERED_FROM and _RATES[data].centered is not None
        chosen = given.get("optimizer") or ("sgd" if momentum else None)
        center = (deep and chosen != "sgd") if center is None else center
        changed = "even" if depth >= _EVEN_FROM or active < _FEW_ACTIVE else "linear"
        start = (changed if deep and center else "drawn") if start is None else start
        head_rate = _HEAD_RATE if deep and center and start == changed == "even" else 1.0
        optimizer, rate, usual_batch, usual_epochs = _for_chain(data, depth, chosen, center)
    batch = given.get("batch") or usual_batch
    epochs = given.get("epochs") or usual_epochs
    lr, warmup = given.get("lr"), given.get("warmup")
    return Recipe(
        optimizer=optimizer,
        # Three digits, since people read it.
        lr=float(f"{rate:.3g}") if lr is None else lr,
        schedule=given.get("schedule") or "cosine",
        warmup=round(_WARMUP_SHARE * epochs * steps_of_an_epoch(batch)) if warmup is None else warmup,
        batch=batch,
        epochs=epochs,
        center=bool(center),
        start=start or "drawn",
        head_rate=given.get("head_rate", head_rate),
    )


def _for_chain(data: str, depth: int, optimizer: str | None, center: bool) -> tuple[str, float, int, int]:
    """(optimizer, rate, batch, epochs)."""
    rates = _RATES[data]
    centered = rates.centered if center else None
    deep = depth > _SGD_UP_TO or (centered is not None and depth >= _CENTERED_FROM)
    optimizer = optimizer or ("adamw" if deep else "sgd")
    constant, most = rates.adamw if optimizer == "adamw" else rates.sgd
    rate = constant / depth ** (2 if optimizer == "adamw" else 1)
    if optimizer == "adamw" and centered is not None:
        constant, most = centered
        rate = constant / depth
    epochs = next(epochs for limit, epochs in rates.epochs if depth <= limit)
    return optimizer, min(most, rate), rates.batch[deep], epochs


def _for_stream(data: str, optimizer: str | None, momentum: float) -> tuple[str, float, int, int]:
    """(optimizer, rate, batch, epochs)."""
    rate, batch, epochs = _RESIDUAL[data]
    optimizer = optimizer or ("sgd" if momentum else "adamw")
    return optimizer, rate if optimizer == "adamw" else _SGD_OF_STREAM, batch, epochs


def expectation(data: str, arch: str, depth: int) -> str:
    """What to expect of the recipe, in a sentence: the measurement at the nearest depth, or that there is none."""
    near = [m for m in MEASURED if m.data == data and arch == "mlp"]
    if not near:
        what = "a CNN" if arch == "cnn" else "this data set"
        return f"The recipe has not been measured on {what}: the run may do no more than leave chance."
    nearest = min(near, key=lambda m: abs(math.log(m.depth / depth)))
    said = f"Measured with the recipe: {nearest}."
    if depth > nearest.depth:
        said += f" Nothing of {depth} layers has been measured: the run may do no more than leave chance."
    elif min(nearest.accuracies) < 0.5:
        said += " The run may do no more than leave chance."
    return said
