"""What a run learns from and is scored on: images, or the windows of a text."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hush.data import Split, Splits, load, load_text
from hush.data.text import byte_entropies, spread_windows, windows_at
from hush.train.batches import EpochBatches, Rows, WindowBatches, loader
from hush.train.config import TrainConfig

__all__ = ["Baseline", "Material", "load_material"]

# Windows of a text on which a run is scored at the end of each epoch, and at its own end.
_VALIDATION_WINDOWS, _TEST_WINDOWS = 256, 1024
_BYTES = 256


@dataclass(frozen=True)
class Baseline:
    """What a text tells without a network, in nats per byte: by how often each byte is, and by the byte before it."""

    single: float
    pair: float


@dataclass(frozen=True, eq=False)
class Material:
    """Of one run.

    Attributes:
        shape: of an input.
        chance: the accuracy of always giving the same answer, the best one.
        baseline: of a text.
        notes: what a reader of the result should know of the data.
        fingerprint: of data that no checksum guards; empty where one does. A run must go on with what it began with.
    """

    shape: tuple[int, ...]
    classes: int
    validation: Split
    test: Split
    chance: float
    _rows: Dataset[tuple[Tensor, Tensor]]
    _batches: EpochBatches
    baseline: Baseline | None = None
    notes: tuple[str, ...] = ()
    fingerprint: str = ""

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return len(self._batches)

    def sample(self, count: int) -> Tensor:
        """The first so many inputs to learn from; fewer where there are fewer."""
        return self._rows[torch.arange(min(count, len(self._rows)))][0]  # type: ignore[arg-type]

    def batches(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """To learn from; their order is a function of (seed, epoch)."""
        return loader(self._rows, self._batches)


def load_material(config: TrainConfig, data_dir: str | Path | None = None, rank: int = 0) -> Material:
    """The data of a run, for the process `rank` of those that share each batch.

    Raises:
        DataError: if they cannot be had.
        ValueError: if more images are asked for than there are.
    """
    return _text(config, rank) if config.data == "text" else _images(config, data_dir, rank)


def _images(config: TrainConfig, data_dir: str | Path | None, rank: int) -> Material:
    splits = load(
        config.data,
        variance=config.design().input_variance,
        per_image=config.per_image,
        shrink=config.shrink,
        patch=config.patch,
        flat=config.arch in ("mlp", "residual_mlp"),
        validation=config.validation,
        seed=config.seed,
        directory=data_dir,
    )
    splits = _cut(splits, config)
    batches = EpochBatches(len(splits.train), config.batch, config.seed, rank, config.devices)
    chance = 1.0 / splits.classes
    return Material(splits.shape, splits.classes, splits.validation, splits.test, chance, Rows(splits.train), batches)


def _cut(splits: Splits, config: TrainConfig) -> Splits:
    """The images that the run is to learn from and be scored on."""
    train = _first(splits.train, config.subset, f"{config.data} has {{}} images to learn from, got a subset of {{}}.")
    held_out, test = (
        _first(split, config.scored, f"{config.data} has {{}} {kind} images, got {{}} to be scored on.")
        for split, kind in ((splits.validation, "held-out"), (splits.test, "test"))
    )
    return dataclasses.replace(splits, train=train, validation=held_out, test=test)


def _first(split: Split, count: int | None, too_many: str) -> Split:
    """The first so many images, all where no count is given; `too_many` says how many there are, and the count."""
    if count is None:
        return split
    if count > len(split):
        raise ValueError(too_many.format(len(split), count))
    return Split(split.images[:count].clone(), split.labels[:count].clone())


def _text(config: TrainConfig, rank: int) -> Material:
    text, context = load_text(), config.context
    assert context is not None
    assert config.steps_per_epoch is not None
    starts = len(text.train) - context
    batches = WindowBatches(starts, config.steps_per_epoch, config.batch, config.seed, rank, config.devices)
    single, pair, most = byte_entropies(text.train)
    return Material(
        shape=(context,),
        classes=_BYTES,
        validation=spread_windows(text.validation, context, _VALIDATION_WINDOWS),
        test=spread_windows(text.test, context, _TEST_WINDOWS),
        chance=most,
        _rows=_Windows(text.train, context),
        _batches=batches,
        baseline=Baseline(single, pair),
        notes=(
            f"The text is the {text.description} (fingerprint {text.description.fingerprint}). How often each byte is "
            f"tells {single:.3f} nats per byte, the byte before it {pair:.3f}.",
        ),
        fingerprint=text.description.fingerprint,
    )


class _Windows(Dataset[tuple[Tensor, Tensor]]):
    """Bytes and those that follow them, by where the windows begin."""

    def __init__(self, text: Tensor, context: int) -> None:
        self.text, self.context = text, context

    def __getitem__(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        split = windows_at(self.text, starts, self.context)
        return split.images, split.labels

    def __len__(self) -> int:
        return len(self.text) - self.context
