"""Files that are what the catalogue says, and still wrong: every complaint names one."""

from pathlib import Path

import numpy as np
import pytest

from hush.data import DataError
from hush.data.splits import load
from tests.data.samples import (
    TRAIN,
    batch,
    cifar_catalogue,
    cifar_contents,
    idx,
    idx_catalogue,
    idx_contents,
    pixels,
    write,
)

LABELS = (np.arange(TRAIN) % 10).astype(np.uint8)


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("train-images-idx3-ubyte", idx(LABELS), "train-images-idx3-ubyte\\S* has the magic number 0x00000801"),
        ("train-labels-idx1-ubyte", idx(LABELS[:-1]), "train-labels-idx1-ubyte\\S* do not belong together: 40 .* 39"),
        ("train-labels-idx1-ubyte", idx(LABELS + 1), "have the label 10; those of mnist end at 9"),
        ("t10k-images-idx3-ubyte", idx(pixels(10, 16).reshape(10, 2, 8)), "images of 2×8 pixels; .* have 4×4"),
    ],
    ids=["magic", "length", "label", "shape"],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_that_do_not_fit(tmp_path: Path, name: str, data: bytes, complaint: str, zipped: bool) -> None:
    contents = {**idx_contents(), name: data}
    with pytest.raises(DataError, match=complaint):
        load("mnist", directory=write(contents, tmp_path / "copy", zipped=zipped), catalogue=idx_catalogue(contents))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (batch(pixels(20, 12), [0] * 19), "data_batch_2 does not fit together: 20 images and 19 labels"),
        (batch(pixels(20, 12), [0] * 19 + [10]), "have the label 10"),
        (batch(pixels(20, 13), [0] * 20), "data_batch_2 is not a CIFAR batch: its data are not rows of 12 bytes"),
    ],
    ids=["length", "label", "shape"],
)
def test_batches_that_do_not_fit(tmp_path: Path, data: bytes, complaint: str) -> None:
    contents = {**cifar_contents(), "data_batch_2": data}
    with pytest.raises(DataError, match=complaint):
        load("cifar10", directory=write(contents, tmp_path / "copy"), catalogue=cifar_catalogue(contents))
