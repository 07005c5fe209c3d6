"""Pixels as they are in the files: from verified bytes to arrays of unsigned bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hush.data.catalogue import DataFile, DataSet
from hush.data.checksum import read_verified
from hush.data.cifar import read_cifar
from hush.data.errors import DataError
from hush.data.idx import read_idx

__all__ = ["Raw", "read_files"]


@dataclass(frozen=True, eq=False)
class Raw:
    """Images (N, C·H·W) and labels (N,), as bytes."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


def read_files(entry: DataSet, paths: Sequence[Path]) -> Raw:
    """Verify and read the files of `entry`, whose places are `paths`, in its order.

    Raises:
        DataError: naming the file that is damaged, malformed or does not fit the others.
    """
    middle = len(entry.train_files)
    return Raw(*_read(entry, entry.train_files, paths[:middle]), *_read(entry, entry.test_files, paths[middle:]))


def _read(
    entry: DataSet, files: Sequence[DataFile], paths: Sequence[Path]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    read = _read_idx_pair if entry.format == "idx" else _read_batches
    images, labels = read(entry, files, paths)
    names = " and ".join(dict.fromkeys([str(paths[0]), str(paths[-1])]))
    if len(images) != len(labels):
        raise DataError(f"{names} do not belong together: {len(images)} images and {len(labels)} labels.")
    if len(labels) and labels.max() >= entry.classes:
        raise DataError(f"{names} have the label {labels.max()}; those of {entry.name} end at {entry.classes - 1}.")
    return images, labels


def _read_idx_pair(
    entry: DataSet, files: Sequence[DataFile], paths: Sequence[Path]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    images = read_idx(read_verified(paths[0], files[0]), 3, str(paths[0]))
    labels = read_idx(read_verified(paths[1], files[1]), 1, str(paths[1]))
    if images.shape[1:] != entry.shape[1:]:
        found, expected = ("×".join(map(str, shape)) for shape in (images.shape[1:], entry.shape[1:]))
        raise DataError(f"{paths[0]} has images of {found} pixels; those of {entry.name} have {expected}.")
    return images.reshape(len(images), entry.pixels), labels


def _read_batches(
    entry: DataSet, files: Sequence[DataFile], paths: Sequence[Path]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    batches = [
        read_cifar(read_verified(path, file), entry.pixels, str(path)) for file, path in zip(files, paths, strict=True)
    ]
    return np.concatenate([batch.images for batch in batches]), np.concatenate([batch.labels for batch in batches])
