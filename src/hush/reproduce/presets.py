"""How a table's runs are trained: by the paper's protocol, whole or only its first epoch, by what two cores finish in
hours, or in a minute's test.

Every recipe is a dict of TrainConfig fields below, one for each kind of network, of which some rows may have their own;
what a preset does differently from the paper is a list of sentences that is printed under its table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from hush.train.config import TrainConfig

__all__ = ["KINDS", "PRESETS", "Preset", "left_open", "preset"]

# deep: Table 1, DNN of 100 layers; cnn: Table 1, CNN of 50; shallow: DNN of 30; second: the second failure mode
KINDS = ("deep", "cnn", "shallow", "second")


@dataclass(frozen=True)
class RowRecipe:
    """What some rows have instead of the preset's fields; of several that fit a row the first counts.

    Arguments:
        rows: patterns of their names, such as "cst-*-0.9".
        fields: of TrainConfig.
    """

    rows: tuple[str, ...]
    fields: Mapping[str, Any]

    def sentence(self, usual: Mapping[str, Any]) -> str:
        """Empty where they differ in nothing."""
        other = ", ".join(f"{name} = {value}" for name, value in self.fields.items() if value != usual.get(name))
        return f"But rows {' and '.join(self.rows)}: {other}." if other else ""


@dataclass(frozen=True)
class Preset:
    """The recipe of one kind of network.

    Arguments:
        fields: of TrainConfig.
        own: some rows have other fields.
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
    own: tuple[RowRecipe, ...] = ()
    v_primes: tuple[float, ...] | None = None
    one_each: bool = False
    # Only the very protocol of the paper can be held to its printed values, and a smoke test to nothing.
    exact: bool = False
    judged: bool = True

    def with_fields(self, given: Mapping[str, Any]) -> "Preset":
        """With some fields set anew; that is a difference too."""
        fields = MappingProxyType({**self.fields, **given})
        own = tuple(replace(o, fields=MappingProxyType({**o.fields, **given})) for o in self.own)
        changed = replace(self, fields=fields, own=own)
        # What the paper leaves open is not part of its protocol.
        return replace(changed, exact=self.exact and not changed.differences)

    @property
    def differences(self) -> tuple[str, ...]:
        """From the paper's protocol, one sentence each; none means that the paper's values are within reach."""
        return _differences(self.fields, self.kind, self.seeds, self.own)

    def fields_of(self, row: str) -> dict[str, Any]:
        """The fields of the row of this name."""
        own = (o.fields for o in self.own if any(fnmatchcase(row, pattern) for pattern in o.rows))
        return {**self.fields, **next(own, {})}


# What the paper does not say and had to be chosen, and the fields for which the sentence holds.
_LEFT_OPEN: tuple[tuple[dict[str, Any], str], ...] = (
    ({"output": "edge"}, "How the paper draws its output layer: here on the edge of chaos, like the others."),
    ({"per_image": False}, "Whether the paper normalises images one by one: here over the training set."),
    (
        {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0},
        "The paper names no momentum and no weight decay: here there is none.",
    ),
    ({"arch": "cnn"}, "How the paper's CNN pads and pools: here 3×3, circular, stride 1, a mean over all positions."),
)

# Neither is of the paper; a run says so even where it is the usual thing at its depth.
_AS_DRAWN = {"center": False, "start": "drawn"}
_PAPER = {"optimizer": "sgd", "schedule": "constant", "warmup": 0, "batch": 16, "epochs": 200, **_AS_DRAWN}
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

# Two CPU cores, hours. A row still at chance after `give_up` epochs has failed: it is not taken further.
QUICK: dict[str, dict[str, Any]] = {
    "deep": {
        "data": "mnist",
        "depth": 100,
        "width": 300,
        **_AS_DRAWN,
        "per_image": True,
        "optimizer": "adamw",
        "lr": 5e-5,
        "schedule": "cosine",
        "warmup": 84,
        "batch": 128,
        "epochs": 12,
        "give_up": 3,
        "enough": 0.52,
    },
    "cnn": {
        "data": "cifar10",
        "arch": "cnn",
        "depth": 20,
        "width": 64,
        **_AS_DRAWN,
        "optimizer": "adamw",
        "lr": 2e-4,
        "schedule": "cosine",
        "warmup": 50,
        "batch": 32,
        "epochs": 2,
        "subset": 20000,
        "shrink": 4,
        "validation": 0.02,
    },
    "shallow": {
        "data": "mnist",
        "depth": 30,
        "width": 300,
        **_AS_DRAWN,
        "optimizer": "adamw",
        "lr": 3e-4,
        "schedule": "cosine",
        "warmup": 42,
        "batch": 256,
        "epochs": 4,
        "give_up": 2,
    },
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

# Where V is steep and the layers are sparse, AdamW leaves chance (passes one half) soon. Elsewhere SGD does, at a rate
# that the slope bounds: five times the paper's at V′ = 0.5. Where either ends short of one half, SGD at a lower rate
# does in more epochs, and where the layers are sparsest and the clip is lowest, AdamW that begins its cosine anew.
_SGD = {"optimizer": "sgd", "warmup": 400, "batch": 32, "epochs": 10}
_OWN = {
    ("quick", "deep"): (
        RowRecipe(("cst-0.8-0.5",), MappingProxyType({"epochs": 24, "restarts": 1})),
        RowRecipe(
            ("cst-0.85-0.5",), MappingProxyType({"lr": 7e-5, "batch": 256, "epochs": 44, "restarts": 1, "give_up": 8})
        ),
        RowRecipe(("crelu-0.8-0.9",), MappingProxyType({**_SGD, "lr": 9e-5, "epochs": 32})),
        RowRecipe(("cst-0.7-0.5",), MappingProxyType({**_SGD, "lr": 3e-4, "epochs": 16})),
        RowRecipe(("crelu-0.85-0.5",), MappingProxyType({**_SGD, "lr": 4e-4, "epochs": 16})),
        RowRecipe(("cst-0.8-0.7",), MappingProxyType({**_SGD, "lr": 2.5e-4, "epochs": 16})),
        RowRecipe(("*-*-0.5",), MappingProxyType({**_SGD, "lr": 5e-4})),
        RowRecipe(("*-0.[567]-0.7",), MappingProxyType({**_SGD, "lr": 3e-4})),
        RowRecipe(("*-0.[567]-0.9",), MappingProxyType({**_SGD, "lr": 1.5e-4})),
    ),
    # The sparsest layers take three times as long to their plateau, and but for V′ = 0.5 come apart at the usual rate.
    ("quick", "shallow"): (
        RowRecipe(("*-0.85-0.5", "*-0.9-0.5"), MappingProxyType({"epochs": 12})),
        RowRecipe(
            ("*-0.85-0.7", "*-0.9-0.7", "crelu-0.85-0.9", "cst-0.7-0.9"), MappingProxyType({"epochs": 12, "lr": 1e-4})
        ),
    ),
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

# What `hush train` takes for deep chains, one recipe for every row.
_RECIPE = {
    "data": "mnist",
    "width": 300,
    "per_image": True,
    "center": True,
    "start": "linear",
    "optimizer": "adamw",
    "schedule": "cosine",
    "batch": 128,
}
RECIPE: dict[str, dict[str, Any]] = {
    "deep": {**_RECIPE, "depth": 100, "lr": 1e-4, "warmup": 506, "epochs": 12},
    "shallow": {**_RECIPE, "depth": 30, "lr": 3e-4, "warmup": 253, "epochs": 6},
}

_ONE = dict.fromkeys(KINDS, 1)
_SEEDS = {
    "paper": {"cnn": 1},
    "recipe": {"deep": 1, "shallow": 1},
    "probe": _ONE | {"shallow": 5},
    "quick": {"deep": 1, "cnn": 1},
    "smoke": _ONE,
}
# Too short for an accuracy, long enough to come apart.
_CUT_SHORT = {("quick", "cnn"), *(("probe", kind) for kind in KINDS)}
_V_PRIMES = {("quick", "cnn"): (0.7, 0.9), **{("smoke", kind): (0.7,) for kind in KINDS}}


def _differences(mine: Mapping[str, Any], kind: str, seeds: int, own: tuple[RowRecipe, ...]) -> tuple[str, ...]:
    """What a preset does that the paper does not, read off its fields, so that none is forgotten."""
    paper = PAPER[kind]
    words = {
        "data": "Data: {0} instead of {1}.",
        "depth": "{0} layers instead of {1}.",
        "width": "{0} units or channels a layer instead of {1}.",
        "optimizer": "Trained by {0} instead of {1}.",
        "lr": "Learning rate {0:g} instead of {1:g}.",
        "schedule": "The learning rate follows the schedule {0}; the paper's is constant.",
        "warmup": "The learning rate rises over the first {0} steps; the paper names no warm-up.",
        "epochs": "Epochs: at most {0} instead of {1}.",
        "center": "The gradients of the weights are centred, and steps keep the means of the layers.",
        "start": "The network is drawn as the paper's and then made nearly linear on the data.",
        "layer_clip": "The norm of each layer's gradient is clipped at {0:g}; the paper names no clipping.",
        "subset": "Trained on {0} images instead of all.",
        "shrink": "Images averaged over squares of {0} × {0} pixels.",
        "enough": "A run is stopped once it has left chance: at a validation accuracy of {0:g}.",
        "give_up": "A run still at chance after {0} epochs has failed and is not taken further.",
    }
    said = [s.format(mine[f], paper.get(f)) for f, s in words.items() if f in mine and mine[f] != paper.get(f)]
    usual = {f.name: f.default for f in dataclass_fields(TrainConfig)}
    unsaid = {f for f in mine if mine[f] != paper.get(f, usual[f])} - set(words) - {"batch"}
    said += [f"{f} = {mine[f]}, of which the paper says nothing." for f in sorted(unsaid)]
    said += filter(None, (o.sentence(mine) for o in own))
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
        own=_OWN.get((name, kind), ()),
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
    "recipe": RECIPE,
    "paper": PAPER,
}
