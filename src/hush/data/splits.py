"""The one verb: a data set by name, as tensors ready to train on."""

import math
from dataclasses import dataclass
from os.path import exists
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hush.data.catalogue import CATALOGUE, Catalogue, DataSet, data_set
from hush.data.digits import read_digits
from hush.data.directory import search
from hush.data.errors import DataError
from hush.data.normalise import moments, standardise, standardise_each
from hush.data.raw import Raw, read_files
from hush.data.sources import cached_files, fetch

__all__ = ["Split", "Splits", "load"]


@dataclass(frozen=True, eq=False)
class Split:
    """Images, float32 (N, C·H·W) or (N, C, H, W), and labels, int64 (N,); of a text, bytes and those that follow."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        kind = "images" if self.images.is_floating_point() else "windows"
        return f"Split({len(self)} {kind} of shape {tuple(self.images.shape[1:])})"


@dataclass(frozen=True, eq=False)
class Splits:
    """A data set in three: to learn from, to choose by, and to judge by."""

    name: str
    shape: tuple[int, int, int]
    classes: int
    train: Split
    validation: Split
    test: Split


def load(
    name: str,
    *,
    variance: float = 1.0,
    per_image: bool = False,
    flat: bool = True,
    shrink: int = 1,
    patch: int = 1,
    validation: float = 0.1,
    seed: int = 0,
    directory: str | Path | None = None,
    catalogue: Catalogue = CATALOGUE,
) -> Splits:
    """Load `name`, fetching it first if need be; every byte is verified each time.

    Arguments:
        name: "digits", "mnist", "fashion_mnist" or "cifar10".
        variance: of the inputs, whose mean is 0: q*, or what `Design.input_variance` says.
        per_image: give every image mean 0 and that variance, instead of the training set as a whole.
        flat: images as vectors, or else as (C, H, W).
        shrink: average each image over squares of so many pixels first, rounded to whole bytes.
        patch: then let squares of so many pixels a side become the channels of one position: nothing is lost, and
            (C, H, W) becomes (C·patch², H / patch, W / patch), in the order of `torch.nn.PixelUnshuffle`.
        validation: the share of the training set held out.
        seed: which images those are.
        directory: where your own copy is, in one of torchvision's layouts or as bare files.

    Raises:
        DataError: if the data cannot be had or are damaged, or an argument is out of range.
    """
    entry = data_set(name, catalogue)
    if not (math.isfinite(variance) and variance > 0):
        raise DataError(f"the variance of the inputs must be positive and finite, not {variance}.")
    if not 0 <= validation < 1:
        raise DataError(f"the share held out for validation must be at least 0 and below 1, not {validation}.")
    shape = _cut_into_squares(entry.shape, shrink)
    positions = _cut_into_squares(shape, patch)
    if patch > 1 and flat:
        raise DataError(f"squares of {patch} pixels become positions of images, not of vectors; ask for flat=False.")
    raw = read_digits(entry) if entry.format == "embedded" else _read(entry, directory, catalogue)
    held_out = _held_out(len(raw.train_labels), validation, seed)
    # The moments are those of the images to learn from: what is held out must not leak into them.
    images = {"train": raw.train_images[~held_out], "validation": raw.train_images[held_out], "test": raw.test_images}
    labels = {"train": raw.train_labels[~held_out], "validation": raw.train_labels[held_out], "test": raw.test_labels}
    if shrink > 1:
        images = {split: _average(pixels, entry.shape, shrink) for split, pixels in images.items()}
    of = moments(images["train"])
    # The bytes are let go one by one while the four times larger floats come.
    del raw
    splits = {}
    for split in ("train", "validation", "test"):
        pixels = images.pop(split)
        x = standardise_each(pixels, variance) if per_image else standardise(pixels, of, variance)
        del pixels
        x = x if flat else x.unflatten(1, shape)
        x = torch.nn.functional.pixel_unshuffle(x, patch) if patch > 1 else x
        splits[split] = Split(x, torch.from_numpy(labels[split]).to(torch.int64))
    return Splits(name, (shape[0] * patch**2, *positions[1:]), entry.classes, **splits)


def _read(entry: DataSet, directory: str | Path | None, catalogue: Catalogue) -> Raw:
    """Straight from the files where they are; only if that fails, fetch."""
    if directory is not None:
        found = search(entry, Path(directory).expanduser())
        if found is not None and found.files:
            return read_files(entry, found.files)
    if all(exists(path) for path in cached_files(entry)):
        try:
            return read_files(entry, cached_files(entry))
        except DataError:
            pass  # fetch names what is wrong, and replaces it if it can
    return read_files(entry, fetch(entry.name, directory=directory, catalogue=catalogue).files)


def _cut_into_squares(shape: tuple[int, int, int], side: int) -> tuple[int, int, int]:
    """The shape of an image of which squares of `side` pixels a side have become one."""
    channels, height, width = shape
    if int(side) != side or side < 1 or height % side or width % side:
        raise DataError(f"images of {height} × {width} do not fall into squares of {side} pixels a side.")
    return channels, height // side, width // side


def _average(images: NDArray[np.uint8], shape: tuple[int, int, int], shrink: int) -> NDArray[np.uint8]:
    channels, height, width = shape
    squares = images.reshape(len(images), channels, height // shrink, shrink, width // shrink, shrink)
    sums = squares.sum((3, 5), dtype=np.uint32)
    averages: NDArray[np.uint8] = np.rint(sums / shrink**2).astype(np.uint8)
    return averages.reshape(len(images), -1)


def _held_out(count: int, share: float, seed: int) -> NDArray[np.bool_]:
    """Which of `count` images are held out: a mask, so that both parts keep the order of the files."""
    chosen = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[: round(share * count)]
    mask = np.zeros(count, bool)
    mask[chosen.numpy()] = True
    if mask.all():
        raise DataError(f"holding out {share:g} of {count} training images leaves none to learn from.")
    return mask
