"""What a training run is: everything that decides its result, in one frozen, validated value."""

import functools
import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from hush.data.catalogue import CATALOGUE
from hush.theory import Design, activation, activation_names, clipped_names, design, entry_of
from hush.train.architectures import ARCHITECTURES, Architecture, parse_branch_scale
from hush.train.dense_activations import dense_names
from hush.train.recipe import Recipe, recipe_for, steps_of_an_epoch

__all__ = ["FILLED_IN", "TrainConfig"]

_CHOICES = {
    "arch": tuple(ARCHITECTURES),
    "data": ("digits", "mnist", "fashion_mnist", "cifar10", "text"),
    "weights": ("gaussian", "orthogonal", "delta_orthogonal"),
    "output": ("edge", "preserve", "zero", "keep"),
    "optimizer": ("sgd", "adamw"),
    "schedule": ("constant", "cosine"),
    "start": ("drawn", "linear", "even", "white"),
    "pool": ("average", "none"),
    "engine": ("sparse", "dense"),
    "precision": ("32-true", "bf16-mixed", "64-true"),
    "accelerator": ("auto", "cpu", "gpu"),
}
# Where a run is computed does not decide what it is: the same run may go on elsewhere.
_ELSEWHERE = ("accelerator", "strategy")
# What the recipe, and what the architecture fills in where it is not given.
_FITTED = tuple(f.name for f in fields(Recipe))
_USUAL = ("data", "depth", "width", "engine", "norm", "branch_scale", "context", "steps_per_epoch")
FILLED_IN = (*_FITTED, *_USUAL)
# What only some architectures have, and what only images have, with the value that says nothing.
_NOT_EVERYWHERE: dict[str, Any] = {
    "hidden": None,
    "norm": None,
    "branch_scale": None,
    "heads": None,
    "gated": False,
    "context": None,
    "steps_per_epoch": None,
    "pool": "average",
}
_OF_IMAGES: dict[str, Any] = {
    "subset": None,
    "scored": None,
    "shrink": 1,
    "patch": 1,
    "per_image": False,
    "validation": 0.1,
}
# A run's name is a hash of what differs from these values. They were the defaults once and stay as they are, as does
# the spelling of a field that has been renamed: the names of recorded runs must not change.
_HASH_BASE = {"optimizer": "sgd", "lr": 2e-3, "schedule": "constant", "warmup": 400, "batch": 32, "epochs": 10}
# What an earlier version had no choice of.
_ONLY_WAY = {"center": False, "start": "drawn", "head_rate": 1.0}
_HASH_BASE |= _ONLY_WAY
_HASH_BASE |= {"data": "digits", "depth": 30, "width": 300, "engine": "sparse"}
_HASH_SPELLING = {"optimizer": "optimiser"}
_RENAMED = {"optimiser": "optimizer"}
# Zeros from which on residual blocks gain by the engine at every width and batch that was measured.
_GAINS_FROM = 0.8
# The odds of a design are simulated layer by layer: deeper than this it takes minutes and gigabytes.
_DEEPEST = 10_000
# The order of the batches is drawn by seed · 1,000,003 + epoch, which must fit into 64 bits.
_LARGEST_SEED = 2**40
_COUNTS: tuple[str, ...] = ("depth", "width", "batch", "epochs", "devices", "watch", "shrink", "subset", "give_up")
_COUNTS += ("scored", "patch", "restarts", "warmup", "seed", "hidden", "heads", "context", "steps_per_epoch")


# Open intervals in which a value must lie.
_RANGES = (
    ("lr", 0.0, math.inf),
    ("head_rate", 0.0, math.inf),
    ("q_star", 0.0, math.inf),
    ("layer_clip", 0.0, math.inf),
    ("validation", 0.0, 1.0),
    ("enough", 0.0, 1.0),
)


def _within(above: float, below: float) -> str:
    return "be positive and finite" if math.isinf(below) else f"lie between {above:g} and {below:g}"


@functools.lru_cache(maxsize=256)
def _design(activation: str, sparsity: float | None, **choice: Any) -> Design:
    return design(activation, sparsity, **choice)


def _note(text: str, default: Any) -> Any:
    """A field and its one-line help, which the command line prints."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainConfig:
    """One training run. Equal configs give equal results (bit for bit on a CPU with as many threads).

    What is left out is filled in: sizes by the architecture, and optimizer, lr, schedule, warmup, batch and epochs by
    `recipe_for`, to fit architecture, data set and depth. Afterwards every field that the network has has a value, and
    `to_json` writes it.
    """

    data: str = _note("digits, mnist, fashion_mnist or cifar10; text for gpt.", None)
    activation: str = _note(
        f"{', '.join(activation_names())}; without a design, to compare with: {', '.join(dense_names())}.", "crelu"
    )
    sparsity: float | None = _note("The share of exact zeros; 0.85 unless a threshold is given.", None)
    threshold: float | None = _note("τ, instead of a sparsity.", None)
    clip: float | None = _note("m; without it and without v_prime as design chooses it.", None)
    v_prime: float | None = _note("Choose the clip by its slope V′(q*).", None)
    q_star: float = _note("The variance q* of the pre-activations.", 1.0)
    depth: int = _note("Hidden layers; residual blocks; layers of a gpt. By default 30; resnet 9, gpt 4.", None)
    width: int = _note(
        "Units of a layer or of the stream, channels of a CNN. By default 300; resnet 16, gpt 192.", None
    )
    arch: str = _note(f"{', '.join(ARCHITECTURES)}.", "mlp")
    hidden: int | None = _note(
        "Units between the two matrices of a block: residual_mlp has one matrix without it, gpt takes 4 · width.", None
    )
    norm: str | None = _note(
        "In front of a branch: rms, layer or none; resnet batch, layer or none. By default the first.", None
    )
    branch_scale: str | None = _note(
        "Factor of every branch: 1/sqrt(depth), which is usual, 1/depth, learned, or a number.", None
    )
    heads: int | None = _note("Of a gpt's attention; by default one for every 64 units.", None)
    gated: bool = _note("Give a gpt gated feed-forward blocks.", False)
    context: int | None = _note("Bytes a gpt reads at once; by default 128.", None)
    steps_per_epoch: int | None = _note("Of a gpt: steps after which it is scored and saved; by default 100.", None)
    pool: str = _note(
        "What the head of a cnn reads: average, the mean over positions, or none, all of them side by side.", "average"
    )
    weights: str = _note("gaussian, orthogonal or delta_orthogonal.", "gaussian")
    output: str = _note("How the head is drawn: edge, preserve, zero or keep.", "edge")
    start: str = _note(
        "drawn (on the edge of chaos), linear: then changed to begin nearly linear on the data, which is usual for "
        "chains from 30 layers on, even: so, with as many active units in every layer, usual from 50 on, and where "
        "a layer has fewer than 30 active units, or white: evenly, and the active units read principal components.",
        None,
    )
    center: bool = _note("Centre the gradients of the weights; by default deep chains do.", None)
    optimizer: str = _note("sgd or adamw; by default what fits the depth.", None)
    lr: float = _note("The learning rate; by default one that fits data, depth and optimizer.", None)
    head_rate: float = _note(
        "The learning rate of the head, as a multiple of lr: 10 for chains whose usual start is even, else 1.", None
    )
    momentum: float = _note("Momentum of SGD.", 0.0)
    weight_decay: float = _note("Weight decay.", 0.0)
    layer_clip: float | None = _note("Clip the norm of each layer's gradient at this value.", None)
    schedule: str = _note("constant or cosine, by default cosine.", None)
    restarts: int = _note("Begin the cosine anew so many times, each from half the rate of the one before.", 0)
    warmup: int = _note("Steps over which the learning rate rises from 0; by default a tenth of all.", None)
    batch: int = _note("Images of a step, over all devices; by default what fits the depth.", None)
    epochs: int = _note("Passes over the training set; by default what fits data and depth.", None)
    give_up: int | None = _note("Stop as failed when still at chance after so many epochs.", None)
    enough: float | None = _note("Stop as trained once the validation accuracy has reached this.", None)
    subset: int | None = _note("Train on so many images only.", None)
    scored: int | None = _note("Score on so many held-out and so many test images only.", None)
    shrink: int = _note("Average the images over squares of so many pixels.", 1)
    patch: int = _note("Squares of so many pixels a side are the channels of one position; of a cnn or resnet.", 1)
    per_image: bool = _note("Standardise each image by itself.", False)
    validation: float = _note("The share of the training set held out.", 0.1)
    hold: bool = _note("Hold the sparsity: thresholds move while it trains.", False)
    watch: int = _note("Record every layer at the first 15 steps and every so many steps.", 200)
    engine: str = _note(
        "sparse (hush.sparse) or dense; by default sparse for mlp, cnn and, from 0.8 zeros, residual_mlp.",
        None,
    )
    precision: str = _note("32-true, bf16-mixed or 64-true.", "32-true")
    accelerator: str = _note("auto, cpu or gpu.", "auto")
    devices: int = _note("Processes or GPUs that share each batch.", 1)
    strategy: str = _note("Lightning's strategy for several devices.", "ddp")
    seed: int = _note("Of the initialisation, the held-out images and the order of the batches.", 0)

    def __post_init__(self) -> None:
        if self.arch in ARCHITECTURES:
            self._fill_in_usual()
        if self.sparsity is None and self.threshold is None and self.designed:
            object.__setattr__(self, "sparsity", 0.85)
        self._check_values()
        self._check_what_belongs()
        self._fill_in()
        if self.restarts and self.schedule != "cosine":
            raise ValueError(f"restarts = {self.restarts} belong to the schedule cosine, got {self.schedule}.")
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum = {self.momentum} belongs to sgd; {self.optimizer} has its own.")
        if self.batch % self.devices:
            raise ValueError(f"a batch of {self.batch} cannot be shared by {self.devices} devices equally.")
        self.design()  # whatever is wrong with the activation's own values

    def _check_values(self) -> None:
        """Each field by itself; those that the recipe fills in may be missing still."""
        for name, known in (_CHOICES | {"activation": (*activation_names(), *dense_names())}).items():
            value = getattr(self, name)
            if value not in known and not (value is None and name in _FITTED):
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
        if self.sparsity is not None and self.threshold is not None:
            raise ValueError(f"sparsity = {self.sparsity} and threshold = {self.threshold}: give one of them.")
        for name in _COUNTS:
            lowest = 0 if name in ("restarts", "warmup", "seed") else 1
            value = getattr(self, name)
            if value is None and name in (*_FITTED, *_NOT_EVERYWHERE, "subset", "scored", "give_up"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                raise ValueError(f"{name} must be a whole number of at least {lowest}, got {value!r}.")
        for name, most in (("depth", _DEEPEST), ("seed", _LARGEST_SEED)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most:,}, got {getattr(self, name):,}.")
        for name, above, below in _RANGES:
            value = getattr(self, name)
            if value is None and name in ("lr", "head_rate", "layer_clip", "enough"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
                raise ValueError(f"{name} must {_within(above, below)}, got {value!r}.")
        for name in ("momentum", "weight_decay"):
            value, top = getattr(self, name), 1.0 if name == "momentum" else math.inf
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < top:
                raise ValueError(f"{name} must be at least 0 and below {top:g}, got {value!r}.")

    def _check_what_belongs(self) -> None:
        """Each field beside the others: whether the network, the data and the activation have what it says."""
        arch = self.architecture
        for name, nothing in _NOT_EVERYWHERE.items():
            if getattr(self, name) != nothing and not arch.owns(name):
                owners = " and ".join(other for other, kind in ARCHITECTURES.items() if kind.owns(name))
                raise ValueError(f"{name} = {getattr(self, name)} belongs to {owners}; {self.arch} has none.")
        if arch.norms and self.norm not in arch.norms:
            raise ValueError(f"norm of {self.arch} must be one of {', '.join(arch.norms)}, got {self.norm!r}.")
        if arch.residual:
            scale = parse_branch_scale(str(self.branch_scale))
            if not isinstance(scale, str) and not 0.0 < scale < math.inf:
                raise ValueError(f"branch_scale must be positive and finite, got {self.branch_scale}.")
        if self.weights == "delta_orthogonal" and self.arch not in ("cnn", "resnet"):
            raise ValueError(f"delta_orthogonal weights are for a cnn or a resnet; of {self.arch} take orthogonal.")
        if self.arch == "resnet" and self.depth % 3:
            raise ValueError(f"a resnet has as many blocks in each of its three stages, got {self.depth} in all.")
        if self.heads is not None and self.width % self.heads:
            raise ValueError(f"a width of {self.width} does not fall into {self.heads} heads of equal size.")
        if (self.data == "text") != (self.arch == "gpt"):
            raise ValueError(f"gpt learns text, and text is learnt by gpt; got {self.arch} and {self.data}.")
        if self.data == "text":
            for name, nothing in _OF_IMAGES.items():
                if getattr(self, name) != nothing:
                    raise ValueError(f"{name} = {getattr(self, name)} is for images; the split of text is fixed.")
        if self.patch > 1 and self.arch not in ("cnn", "resnet"):
            raise ValueError(f"patch = {self.patch} makes channels for a cnn or a resnet; {self.arch} has none.")
        if self.start in ("linear", "even", "white") and self.arch not in ("mlp", "cnn"):
            raise ValueError(f"a linear start is for the chain of an mlp or a cnn; {self.arch} starts as it is drawn.")
        if not isinstance(self.center, bool | None):
            raise ValueError(f"center must be True or False, got {self.center!r}.")
        if self.hold and not self.designed:
            raise ValueError(f"{self.activation} has no threshold to move, so hold = True holds nothing.")
        if self.hold and entry_of(self.activation).relative:
            raise ValueError(
                f"the threshold of {self.activation} is relative to the layer's own size and moves with it already; "
                f"hold = True is for the others, such as crelu."
            )
        if not self.designed:
            for name in ("sparsity", "threshold", "clip", "v_prime"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{self.activation} has no {name} to choose, got {getattr(self, name)}.")

    def _fill_in_usual(self) -> None:
        """Take from the architecture what was not given."""
        for name, value in self.architecture.usual.items():
            if getattr(self, name) is None:
                usual = "sparse" if name == "engine" and self._runs_as_one else value
                object.__setattr__(self, name, usual)

    @property
    def _runs_as_one(self) -> bool:
        """Whether its residual blocks are fused by the engine and sparse enough to gain by it."""
        fuses = self.arch == "residual_mlp" and self.devices == 1
        known = self.activation in activation_names() and not entry_of(self.activation).relative
        return fuses and known and isinstance(self.sparsity, float) and self.sparsity >= _GAINS_FROM

    def _fill_in(self) -> None:
        """Take from the recipe what was not given."""
        given = {name: getattr(self, name) for name in _FITTED if getattr(self, name) is not None}
        share = 1.0 - self.sparsity if isinstance(self.sparsity, int | float) else math.inf
        # Rounded, since 300 · (1 − 0.9) is just below 30.
        how = {"momentum": self.momentum, "active": round(self.width * share, 6)}
        recipe = recipe_for(self.arch, self.data, self.depth, given, self.steps_of_an_epoch, **how)
        for name in _FITTED:
            object.__setattr__(self, name, getattr(recipe, name))

    @property
    def architecture(self) -> Architecture:
        """What the network of this run is."""
        return ARCHITECTURES[self.arch]

    @property
    def designed(self) -> bool:
        """Whether hush chooses τ and m of its activation; a dense one, to compare with, has neither."""
        return self.activation not in dense_names()

    def steps_of_an_epoch(self, batch: int | None = None) -> int:
        """How many steps an epoch has, at this batch or at that of the run."""
        if self.steps_per_epoch is not None:
            return self.steps_per_epoch
        return steps_of_an_epoch(self.data, batch or self.batch, self.validation, self.subset, self.devices)

    def design(self) -> Design:
        """The design at this width and depth: τ, m, the σ's and the verdict before training.

        A dense activation has neither τ nor m to choose, but a verdict.
        """
        sparsity = self.sparsity
        if self.threshold is not None:
            sparsity = float(activation(self.activation, self.threshold, self._any_clip()).sparsity(self.q_star))
        chosen = {"v_prime": self.v_prime, "clip": self.clip, "q_star": self.q_star}
        size = {"width": self.width, "depth": self.depth, "positions": self._positions()}
        return _design(self.activation, sparsity, **size, **chosen, **self._block())

    def _block(self) -> dict[str, Any]:
        """What `design` is told of a residual network.

        Of a gpt it sees the feed-forward blocks; attention only mixes positions, and its branches count in β. A block
        of a resnet is taken for one of one matrix: behind each of its norms q is the same.
        """
        if not self.architecture.residual:
            return {}
        two = "gated" if self.gated else "feedforward"
        scale = parse_branch_scale(str(self.branch_scale))
        if self.arch == "gpt" and isinstance(scale, str):
            scale = 1.0 / (2 * self.depth) ** (1.0 if scale == "1/depth" else 0.5)
        return {
            "block": two if self.hidden is not None or self.arch == "gpt" else "residual",
            "norm": {"none": None, "batch": "layer"}.get(str(self.norm), self.norm),
            "branch_scale": scale,
            "hidden": self.hidden,
        }

    def _positions(self) -> int:
        """Of a CNN, the pixels of an image, or its patches: so many places share each weight. Of an MLP 1."""
        if self.arch not in ("cnn", "resnet"):
            return 1
        _, height, width = CATALOGUE[self.data].shape
        side = self.shrink * self.patch
        return (height // side) * (width // side) or 1

    def _any_clip(self) -> float | None:
        """P(φ = 0) does not depend on the clip, but a clipped activation must have one."""
        return 1.0 if self.activation in clipped_names() else None

    def with_seed(self, seed: int) -> "TrainConfig":
        return replace(self, seed=seed)

    def difference(self, other: "TrainConfig") -> str | None:
        """The first field in which this run differs from another, where it is computed aside: "lr = 0.1, not 0.2"."""
        mine, theirs = self.to_dict(), other.to_dict()
        for name, value in mine.items():
            if name not in _ELSEWHERE and value != theirs[name]:
                return f"{name} = {value}, not {theirs[name]}"
        return None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "TrainConfig":
        """The config `to_json` wrote, by this version or an earlier one.

        Raises:
            ValueError: if the text is not one.
        """
        try:
            values: Any = json.loads(text)
        except ValueError as error:
            raise ValueError(f"this is not a training config: {error}.") from error
        if not isinstance(values, dict):
            raise ValueError(f"this is not a training config: it is {type(values).__name__}, not an object of fields.")
        # What is not said was not there to be chosen when it was written.
        known: dict[str, Any] = {str(_RENAMED.get(name, name)): value for name, value in values.items()}
        values = _ONLY_WAY | known
        unknown = sorted(set(values) - {f.name for f in fields(cls)})
        if unknown:
            raise ValueError(f"a training config has no field {unknown[0]!r}.")
        return cls(**values)

    @property
    def name(self) -> str:
        """The run directory's name: what a person looks for, a hash of all that is not usual, and the seed.

        So a field that a later version adds, with a default that changes nothing, leaves old names alone.
        """
        usual = {f.name: f.default for f in fields(self)} | _HASH_BASE
        given = {
            _HASH_SPELLING.get(name, name): value
            for name, value in self.to_dict().items()
            if name not in (*_ELSEWHERE, "seed") and value != usual[name]
        }
        digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:8]
        what = [self.data, self.activation]
        if self.sparsity is not None:
            what.append(f"s{self.sparsity:g}")
        elif self.threshold is not None:
            what.append(f"t{self.threshold:g}")
        if self.v_prime is not None:
            what.append(f"v{self.v_prime:g}")
        elif self.clip is not None:
            what.append(f"m{self.clip:g}")
        if self.architecture.residual:
            what.append(self.arch)
        return "-".join([*what, f"{self.depth}x{self.width}", digest, f"seed{self.seed}"])
