"""How a table's runs are trained: by the paper's protocol, whole or only its first epoch, by what two cores finish in
hours, or in a minute's test.

Every recipe is a dict of TrainConfig fields below, one for each kind of network, the same for all rows of a table; what
a preset does differently from the paper is a list of sentences that is printed under its table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from types import MappingProxyType
from typing import Any

from hush.train.config import TrainConfig

__all__ = ["KINDS", "PRESETS", "Preset", "left_open", "preset"]

# deep: Table 1, DNN of 100 layers; cnn: Table 1, CNN of 50; shallow: DNN of 30; second: the second failure mode
KINDS = ("deep", "cnn", "shallow", "second")


@dataclass(frozen=True)
class Preset:
    """The recipe of one kind of network.

    Arguments:
        fields: of TrainConfig.
        seeds: runs of a row.
        cut_short: a run is judged by whether it has come apart (see `hush.reproduce.agreement`), not by its accuracy.
        v_primes: the slopes V′ whose rows are run unless rows are asked for; None is all. Unclipped rows always are.
        one_each: of these only the sparsest of each activation.
    """

    name: str
    kind: str
    fields: Mapping[str, Any]
    seeds: int
    cut_short: bool = False
    v_primes: tuple[float, ...] | None = None
    one_each: bool = False
    # Only the very protocol of the paper can be held to its printed values, and a smoke test to nothing.
    exact: bool = False
    judged: bool = True

    def with_fields(self, given: Mapping[str, Any]) -> "Preset":
        """With some fields set anew; that is a difference too."""
        changed = replace(self, fields=MappingProxyType({**self.fields, **given}))
        # What the paper leaves open is not part of its protocol.
        return replace(changed, exact=self.exact and not changed.differences)

    @property
    def differences(self) -> tuple[str, ...]:
        """From the paper's protocol, one sentence each; none means that the paper's values are within reach."""
        return _differences(self.fields, self.kind, self.seeds)


# What the paper does not say and had to be chosen, and the fields for which the sentence holds.
_LEFT_OPEN: tuple[tuple[dict[str, Any], str], ...] = (
    ({"output": "edge"}, "How the paper draws its output layer: here on the edge of chaos, like the others."),
    ({"per_image": False}, "Whether the paper normalises images one by one: here over the training set."),
    (
        {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0},
        "The paper names no momentum and no weight decay: here there is none.",
    ),
    (
        {"arch": "cnn", "pool": "average"},
        "How the paper's CNN pads and pools: here 3×3, circular, stride 1, a mean over all positions.",
    ),
    (
        {"arch": "cnn", "pool": "none"},
        "How the paper's CNN pads and pools: here 3×3, circular, stride 1, no pooling: the head reads all positions.",
    ),
)

# What any value of is a choice that the paper leaves open, and so no difference; `left_open` says which was taken.
_OPEN = {"batch", "pool"}

_STARTS = {
    "linear": "The network is drawn as the paper's and then made nearly linear on the data.",
    "even": "The network is drawn as the paper's and then made nearly linear on the data; biases are moved to make the "
    "numbers of active units even over the layers.",
    "white": "The network is drawn as the paper's and then made nearly linear on the data; biases are moved to make "
    "the numbers of active units even over the layers and to keep them off the clip, and the active units of the first "
    "layer read principal components of the images, white: of equal variance.",
}

# None of these is of the paper; a run says so even where it is the usual thing at its depth.
_AS_DRAWN = {"center": False, "start": "drawn", "head_rate": 1.0}
# The paper does not say its batch size. With 16 rows that it trains come apart within 40 epochs; with 64 they train
# (docs/reproducing.md).
_PAPER = {"optimizer": "sgd", "schedule": "constant", "warmup": 0, "batch": 64, "epochs": 200, **_AS_DRAWN}
_PAPER_DNN = {"data": "mnist", "arch": "mlp", "lr": 1e-4, **_PAPER}
_PAPER_CNN = {"data": "cifar10", "arch": "cnn", "lr": 1e-3, **_PAPER}

PAPER = {
    "deep": {**_PAPER_DNN, "depth": 100, "width": 300},
    "cnn": {**_PAPER_CNN, "depth": 50, "width": 300},
    "shallow": {**_PAPER_DNN, "depth": 30, "width": 300},
    "second": {**_PAPER_DNN, "depth": 100, "width": 300},
}

# Whether a row trains or fails shows in the first of the paper's 200 epochs, long before its accuracy does.
PROBE = {kind: {**fields, "epochs": 1} for kind, fields in PAPER.items()}
# The paper's CNN, 50 layers of 300 channels, on a sixty-fourth of its positions: with fewer channels it is chance which
# rows come apart. 32 steps are enough for all that fail in the paper.
PROBE["cnn"] |= {"patch": 8, "subset": 2048, "scored": 500}

# What `hush train` takes for deep chains, in fewer epochs.
_DEEP_CHAIN = {
    "data": "mnist",
    "width": 300,
    "per_image": True,
    "center": True,
    "optimizer": "adamw",
    "schedule": "cosine",
    "batch": 128,
}
# Two CPU cores, an hour or two.
QUICK: dict[str, dict[str, Any]] = {
    "deep": {
        **_DEEP_CHAIN,
        "depth": 100,
        "start": "even",
        "lr": 1e-4,
        "head_rate": 10.0,
        "warmup": 169,
        "epochs": 4,
    },
    "cnn": {
        "data": "cifar10",
        "arch": "cnn",
        "depth": 20,
        "width": 64,
        "patch": 4,
        "pool": "none",
        "center": True,
        "start": "white",
        "optimizer": "adamw",
        "lr": 2.5e-4,
        "head_rate": 500.0,
        "schedule": "cosine",
        "warmup": 70,
        "batch": 32,
        "epochs": 1,
    },
    "shallow": {**_DEEP_CHAIN, "depth": 30, "start": "linear", "lr": 3e-4, "warmup": 169, "epochs": 4},
    "second": {
        "data": "mnist",
        "depth": 30,
        "width": 300,
        **_AS_DRAWN,
        "lr": 1.5e-2,
        "schedule": "constant",
        "warmup": 0,
        "batch": 64,
        "epochs": 6,
    },
}

# A minute: whether everything works, not what the paper claims.
_SMOKE = {
    **_AS_DRAWN,
    "data": "digits",
    "width": 32,
    "lr": 5e-2,
    "schedule": "constant",
    "warmup": 0,
    "batch": 32,
    "epochs": 4,
}
SMOKE: dict[str, dict[str, Any]] = {
    "deep": {**_SMOKE, "depth": 6},
    "cnn": {**_SMOKE, "arch": "cnn", "depth": 4, "width": 8, "epochs": 3},
    "shallow": {**_SMOKE, "depth": 4},
    "second": {**_SMOKE, "depth": 4},
}

_ONE = dict.fromkeys(KINDS, 1)
_SEEDS = {
    "paper": {"cnn": 1},
    "probe": _ONE | {"shallow": 5},
    "quick": {"deep": 1, "shallow": 1, "cnn": 1},
    "smoke": _ONE,
}
# Too short for an accuracy, long enough to come apart.
_CUT_SHORT = {("quick", "cnn"), *(("probe", kind) for kind in KINDS)}
_V_PRIMES = {("smoke", kind): (0.7,) for kind in KINDS}


def _differences(mine: Mapping[str, Any], kind: str, seeds: int) -> tuple[str, ...]:
    """What a preset does that the paper does not, read off its fields, so that none is forgotten."""
    paper = PAPER[kind]
    words = {
        "data": "Data: {0} instead of {1}.",
        "depth": "{0} layers instead of {1}.",
        "width": "{0} units or channels a layer instead of {1}.",
        "optimizer": "Trained by {0} instead of {1}.",
        "lr": "Learning rate {0:g} instead of {1:g}.",
        "head_rate": "The head's learning rate is {0:g} times that of the layers.",
        "schedule": "The learning rate follows the schedule {0}; the paper's is constant.",
        "warmup": "The learning rate rises over the first {0} steps; the paper names no warm-up.",
        "epochs": "Epochs: at most {0} instead of {1}.",
        "center": "The gradients of the weights are centred, and steps keep the means of the layers.",
        "start": _STARTS.get(mine.get("start", ""), ""),
        "layer_clip": "The norm of each layer's gradient is clipped at {0:g}; the paper names no clipping.",
        "subset": "Trained on {0} images instead of all.",
        "scored": "Scored on {0} held-out and {0} test images instead of all.",
        "shrink": "Images averaged over squares of {0} × {0} pixels.",
        "patch": "Squares of {0} × {0} pixels are the channels of one position: every pixel is kept.",
        "enough": "A run is stopped once it has left chance: at a validation accuracy of {0:g}.",
        "give_up": "A run still at chance after {0} epochs has failed and is not taken further.",
    }
    usual = {f.name: f.default for f in dataclass_fields(TrainConfig)}
    differing = [f for f in words if f in mine and mine[f] != paper.get(f, usual[f])]
    said = [words[f].format(mine[f], paper.get(f)) for f in differing]
    unsaid = {f for f in mine if mine[f] != paper.get(f, usual[f])} - set(words) - _OPEN
    said += [f"{f} = {mine[f]}, of which the paper says nothing." for f in sorted(unsaid)]
    if seeds != _seeds("paper", kind):
        said.append(f"{seeds} {'seed' if seeds == 1 else 'seeds'} a row instead of {_seeds('paper', kind)}.")
    return tuple(said)


# More runs of a row than anybody trains; beyond it is a slip of the keyboard, and memory for nothing.
_MOST_SEEDS = 10_000


def _seeds(name: str, kind: str) -> int:
    return _SEEDS[name].get(kind, 5)


def preset(name: str, kind: str, seeds: int | None = None) -> Preset:
    """One of PRESETS, for one of KINDS.

    Raises:
        ValueError: if there is none of that name.
    """
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; there are {', '.join(PRESETS)}.")
    if kind not in PRESETS[name]:
        raise ValueError(f"preset {name!r} is for {' and '.join(PRESETS[name])} networks, not for {kind}.")
    if seeds is not None and not 1 <= seeds <= _MOST_SEEDS:
        raise ValueError(f"seeds must lie between 1 and {_MOST_SEEDS}, got {seeds}.")
    count = _seeds(name, kind) if seeds is None else seeds
    return Preset(
        name=name,
        kind=kind,
        fields=MappingProxyType(PRESETS[name][kind]),
        seeds=count,
        cut_short=(name, kind) in _CUT_SHORT,
        v_primes=_V_PRIMES.get((name, kind)),
        one_each=name == "smoke",
        exact=name == "paper" and count >= _seeds("paper", kind),
        judged=name != "smoke",
    )


def left_open(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """What the paper leaves open and these fields decide."""
    usual = {f.name: f.default for f in dataclass_fields(TrainConfig)} | dict(fields)
    said = [sentence for where, sentence in _LEFT_OPEN if all(usual[name] == value for name, value in where.items())]
    return (f"The paper's batch size: here {usual['batch']}.", *said)


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": SMOKE,
    "probe": PROBE,
    "quick": QUICK,
    "paper": PAPER,
}
